"""The formats that client and server share: envelopes of calls, and archives of templates.

Only `fleet/client` and `fleet/server` may come in.
"""
