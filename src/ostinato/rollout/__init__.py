"""Sampling of sessions to learn from, and their credit; `loop` and `demo` come in."""
