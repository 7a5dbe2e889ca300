"""The demo: the loop on simulated developers, with its teacher and its report.

Only the command line comes in.
"""
