"""Capture: the hook command that agents and git call, and the inbox to which it writes. It is quick and
silent.

The other folders of this room import this one; it imports only `text`.
"""
