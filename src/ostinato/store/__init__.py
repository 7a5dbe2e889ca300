"""The record: sessions, turns, signals and the ledger in SQL, weights as immutable objects."""

from ostinato.store.database import StoreError
from ostinato.store.ledger import Ledger, LedgerError
from ostinato.store.objects import AlreadyExists, Missing, Objects, ObjectsError, StorageFull
from ostinato.store.record import Store
from ostinato.store.rows import ApiKey, VersionRow

__all__ = [
    "AlreadyExists",
    "ApiKey",
    "Ledger",
    "LedgerError",
    "Missing",
    "Objects",
    "ObjectsError",
    "StorageFull",
    "Store",
    "StoreError",
    "VersionRow",
]
