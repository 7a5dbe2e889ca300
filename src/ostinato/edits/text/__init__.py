"""Comparison of texts: alignment of lines, tokens without formatting, and rates of survival.

These are pure functions; `capture`, `follow` and `report` import this folder.
"""
