"""The exam: hidden tests run by a judge that never imports the candidate's code, which a worker runs.

The guest and the backends hold exams; `harness` and `loop` use the verifier alone.
"""
