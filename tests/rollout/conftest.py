"""A fresh record for every test of this room."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.databases import backend, place, postgres

from ostinato.store import Store

# Nothing is timed: a busy machine is not a bug.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    yield store
    store.close()


__all__ = ["backend", "place", "postgres"]
