"""Exams: a judge runs hidden tests and never imports the candidate's code, which a worker runs.

`sandbox/guest` and `sandbox/backends` hold exams; `harness` and `loop` use the verifier alone.
"""
