"""The faces of the agent: full-screen terminal, lines of text, and an editor by the Agent Client Protocol.

The command line comes in; nothing else of the room does.
"""
