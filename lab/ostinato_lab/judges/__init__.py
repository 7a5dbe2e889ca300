"""The calibration of judges of quality on labelled pairs of diffs.

The command line comes in by `command.py`.
"""
