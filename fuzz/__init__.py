"""Random schedules, histories, commands, floods and secrets, each with the reference that judges the outcome;
tasks on disk and stand-ins of services.

Tests run a few of them and benchmarks thousands, so both may import this package; it imports neither.
"""
