"""The only way out of a sandbox: a proxy that allows connections by policy, counts bytes and records all.

Only `sandbox/backends` and `sandbox/doctor` may come in; programs in a sandbox reach the proxy over a socket.
"""
