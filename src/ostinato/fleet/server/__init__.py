"""Our own servers of the E2B protocol: a node runs sandboxes, a front spreads them over nodes.

Only `fleet/command_line` may come in.
"""
