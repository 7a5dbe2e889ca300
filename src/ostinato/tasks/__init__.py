"""Tasks: their form on disk, the generated pebbles, the scripted teacher, grading and simulated developers.

`harness`, `rollout` and `demo` come in.
"""
