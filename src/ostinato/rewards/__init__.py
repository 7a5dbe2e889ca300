"""Rewards: a session's turns and signals become one number with named parts. Levels 4 and 5 come in."""
