"""Signals: the endpoints by which clients report what became of the model's work, and how sessions end.

`app` comes in.
"""
