"""A fresh record for every test, in a SQLite file and on a real PostgreSQL."""

from collections.abc import Iterator

import pytest
from tests.databases import backend, new_place, place, postgres

from ostinato.store import Ledger, Store


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    yield store
    store.close()


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return Ledger(store)


__all__ = ["backend", "ledger", "new_place", "place", "postgres", "store"]
