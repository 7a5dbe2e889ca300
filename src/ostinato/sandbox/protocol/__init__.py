"""The connection between a backend and the agent in its sandbox: frames, both of its ends, requests, output.

Every other folder of `sandbox` may import it; it imports only `sandbox.base`.
"""
