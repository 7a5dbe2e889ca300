"""The wire between a backend and the agent in its sandbox: frames, the connection, and what is asked over it.

Every other folder of the room may come in; this one knows only `sandbox.base`.
"""
