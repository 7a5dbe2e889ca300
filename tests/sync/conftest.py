"""Hypothesis without deadlines: nothing is timed, because a busy machine is not a bug."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
