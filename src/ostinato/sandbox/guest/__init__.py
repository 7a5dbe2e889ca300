"""The code that runs inside a sandbox: the agent, its jobs, and the first process of a container.

Only the backends import it, to start it and to copy it into guests; it uses `protocol`, `linux`, `files` and
`exam`.
"""
