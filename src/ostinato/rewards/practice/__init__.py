"""The reward of a task with hidden tests: a declared definition over the facts in `parts`. `rollout` and
`loop` come in.
"""
