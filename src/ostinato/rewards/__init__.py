"""Rewards: a session's turns and signals become one number with named parts. `rollout`, `loop`
and `demo` come in.
"""
