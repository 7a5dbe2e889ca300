"""The frontends of the agent: a full-screen terminal, plain lines, and editors with the Agent Client
Protocol.

The command line imports this folder; nothing else in the harness does.
"""
