"""Providers of tools beyond the sandbox: semantic search and MCP servers, behind one protocol.

The agent knows the protocol alone; the workbench and the episode bring the implementations.
"""
