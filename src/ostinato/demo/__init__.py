"""The demo: runs that a person watches, on simulated developers, with their display and their report.

Only the command line comes in.
"""
