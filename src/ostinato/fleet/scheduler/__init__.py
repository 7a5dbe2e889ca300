"""The choice of the node for each sandbox: pure, synchronous code, driven by events and a clock.

Only `fleet/server` may come in.
"""
