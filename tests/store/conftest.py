"""A fresh record for every test."""

from pathlib import Path

import pytest

from ostinato.store import Ledger, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "record.db")


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return Ledger(store)
