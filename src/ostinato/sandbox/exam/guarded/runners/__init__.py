"""The runners of guarded suites: what a guarded exam has to know of each language, one file each.

`guarded/exam.py` comes in through `base.SuiteRunner` and `guarded/suite.py`, which registers them.
"""
