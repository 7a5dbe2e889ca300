"""The search for secrets in text, and their replacement before anything is stored.

Other rooms come in by `find.py`; nothing here imports another part of `store`.
"""
