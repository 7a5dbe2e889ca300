"""Permissions: rules over tools and over what a shell command would run, in practice as at work.

The agent, the workspace and the frontends come in.
"""
