"""Signals: the endpoints by which clients report what became of the model's work, and the endings of
sessions.

`app` imports this folder.
"""
