"""Tasks: their form on disk, their sources, the scripted teachers, grading and simulated developers.

`harness`, `rollout` and `demo` come in.
"""
