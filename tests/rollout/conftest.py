"""A fresh record for every test of this room."""

from collections.abc import Iterator

import pytest
from tests.databases import backend, place, postgres

from ostinato.store import Store


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    yield store
    store.close()


__all__ = ["backend", "place", "postgres"]
