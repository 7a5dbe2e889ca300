"""The tools that read and change files: their schemas, and what each does in a sandbox.

`execute` and `permissions` come in.
"""
