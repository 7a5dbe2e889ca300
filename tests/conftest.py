"""Settings of all tests: hypothesis times nothing, because a busy machine is not a bug.

One profile for every room: which of several holds would depend on the folders that a run is asked for.
"""

from hypothesis import HealthCheck, settings

# Examples of one test may share a fixture: such a test makes a new record in it for each of them.
NOT_MINDED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("untimed", deadline=None, suppress_health_check=NOT_MINDED)
settings.load_profile("untimed")
