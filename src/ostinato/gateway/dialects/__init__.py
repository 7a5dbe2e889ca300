"""The dialects of clients: each reads requests into one form and writes replies from the same turn.

`turns`, `reply` and `app` come in; a dialect knows nothing of engines or of the store.
"""
