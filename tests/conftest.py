"""Settings of all tests: hypothesis times nothing, because a busy machine is not a bug.

One profile for every room: which of several holds would depend on the folders that a run is asked for.
Few examples of each property protect a change; `make test-deep` takes the profile `deep`.
"""

from hypothesis import HealthCheck, settings

# Examples of one test may share a fixture: such a test makes a new record in it for each of them.
NOT_MINDED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("change", deadline=None, suppress_health_check=NOT_MINDED, max_examples=25)
settings.register_profile("deep", deadline=None, suppress_health_check=NOT_MINDED, max_examples=300)
settings.load_profile("change")
