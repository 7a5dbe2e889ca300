"""A week of simulated developers on a virtual clock, through the shipped cycle.

The command line comes in by `command.py`, benchmarks by `week.py` and `satisfaction.py`. The policy alone is
a surrogate, and what people think is known to this folder alone.
"""
