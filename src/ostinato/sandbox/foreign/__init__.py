"""Sandboxes of engines that are not ours: E2B and its likes, and Kubernetes' agent-sandbox.

    Backend ──► ForeignSandbox ──► GuestClient ──a command──► ForeignMachine ──► guest.py, in the sandbox

Such an engine runs a command, takes files and gives them back, and no more. The rest is done by a program
that is sent there. Only `choose` comes in; only its own module imports the library of an engine.
"""
