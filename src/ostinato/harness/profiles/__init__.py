"""Profiles: the prompt and the tools as a model sees them, as data over one executor.

The agent and its conversation come in.
"""
