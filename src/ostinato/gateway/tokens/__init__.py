"""Exact tokens: the message graph of a session, the parser of sampled text, and the text of a stream.

`turns`, `turn_response`, `conversation_cache` and the folder `signals` import this one.
"""
