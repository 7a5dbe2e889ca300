"""The reward of a session with a developer: a declared definition over named facts. `rollout`, `loop` and
`demo` come in; it uses the room's files around it, and none of them uses it.
"""
