"""The only way out of a sandbox: a proxy that allows by policy, counts, and records every connection.

The backends come in; a sandbox reaches it over a socket.
"""
