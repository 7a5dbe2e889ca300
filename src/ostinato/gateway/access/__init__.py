"""Access: keys, limits, the identity that a request claims, and the kind of its turn.

`app`, `turns`, `conversation_cache`, `info_routes` and the folder `signals` import this one. `commands` is
the command line of the operator.
"""
