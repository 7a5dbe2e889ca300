"""Texts compared: alignment of lines, tokens without formatting, and rates of what is left.

Pure functions; the other folders of the room come in.
"""
