"""The scripted teachers: good and bad habits for pebbles, and reference solutions for other tasks.

`loop` and tests come in.
"""
