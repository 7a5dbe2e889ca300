"""Sandboxes on many machines: the servers of a node and of a fleet, the scheduler, and the client.

The room `sandbox` lies below and never imports this one; `loop` and the command line may come in.
"""
