"""The figures of optimizer steps: measured on tokens, put together with the batch, written down.

`policy` and `learner` come in; the noun itself is `types.StepFigures`.
"""
