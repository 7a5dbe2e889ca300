"""A week of simulated developers on a virtual clock, through the shipped cycle.

The command line comes in by `week.py`, benchmarks by `week.py` and `judge.py`. The policy alone is a
surrogate, and what people think is known to this folder alone.
"""
