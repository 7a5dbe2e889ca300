"""Capture: the hook that agents and git call, and the inbox it writes to. Quick, silent, without git.

`follow` and `report` read what is written here.
"""
