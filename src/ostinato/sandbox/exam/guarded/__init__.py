"""Guarded exams: the suite of a real repository, which shares a process with the code that it tests.

The verifier comes in through `exam`. `suite.RUNNERS` names the runners; `inside` is what runs in sandboxes.
"""
