"""The loop: runs and their stages, services, and the cycle from live traffic to a verdict.

Only `demo` and the command line come in.
"""
