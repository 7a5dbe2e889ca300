"""Search by meaning in a repository: a service beside the gateway, which receives files only by HTTP.

The command line comes in by `server.py`; all others send requests.
"""
