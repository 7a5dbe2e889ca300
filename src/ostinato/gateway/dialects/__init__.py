"""The dialects of clients: each parses requests into one form and writes replies from the recorded turn.

`app`, `turns`, `turn_response` and the folders `access` and `tokens` import this one. A dialect knows
nothing of engines or of the store.
"""
