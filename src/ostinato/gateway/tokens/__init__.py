"""Exact tokens: the message graph of a session, the parser of sampled text, and the text of a stream.

`turns` and `sessions` come in.
"""
