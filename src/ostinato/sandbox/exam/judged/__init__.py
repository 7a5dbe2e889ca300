"""Judged exams: a judge runs hidden tests and never imports the candidate's code, which a worker runs.

`sandbox/backends` hold these exams, and `sandbox/guest` serves the worker.
"""
