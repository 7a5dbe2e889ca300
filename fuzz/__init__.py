"""Random schedules, histories, commands, floods and secrets, each with the reference that judges the outcome.

Tests run a few of them and benchmarks thousands, so both may import this package; it imports neither.
"""
