"""Sandboxes on many machines: servers of a node and of a fleet, the scheduler, and the client.

The room `sandbox` lies below and never imports this one; `loop` and the command line come in.
"""
