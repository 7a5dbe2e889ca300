"""The dialects of clients: each parses requests into one form and writes replies from the recorded turn.

Every part of the gateway may import this folder, which imports only `errors`. A dialect knows nothing of
engines or of the store.
"""
