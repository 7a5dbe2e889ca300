"""Rewards: a session's turns and signals become one number with named parts. Rollout and loop come in."""
