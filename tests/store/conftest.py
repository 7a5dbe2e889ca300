"""A fresh record for every test, in a SQLite file and on a real PostgreSQL."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.databases import backend, new_place, place, postgres

from ostinato.store import Ledger, Store

# Nothing is timed: a busy machine is not a bug.
NOT_MINDED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("untimed", deadline=None, suppress_health_check=NOT_MINDED)
settings.load_profile("untimed")


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    yield store
    store.close()


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return Ledger(store)


__all__ = ["backend", "ledger", "new_place", "place", "postgres", "store"]
