"""Access: keys, limits, the identity that a request claims, and the kind of its turn.

`app`, `turns` and `signals` come in; `commands` is the command line of those who run the gateway.
"""
