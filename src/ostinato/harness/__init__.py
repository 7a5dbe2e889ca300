"""The agent: its tools, permissions, limits and loop, the same for a person and in practice.

It speaks only HTTP to the gateway. `rollout`, `bench`, `loop`, `demo` and the command line come in.
"""
