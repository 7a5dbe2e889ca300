"""The laboratory: programs about ostinato, not of it.

It may import everything of `ostinato`. The product imports it in `ostinato/laboratory.py` alone, and only
when one of its commands runs: `ostinato cycle --simulate`, `ostinato plan cluster`, `ostinato bench
calibrate` and `ostinato bench pairs`.
"""
