"""The record: sessions, turns, signals and the ledger in SQL, weights as immutable objects.

Every room may come in by the names exported here; `redaction.find`, `purge`, `accounts` and `wire` are
imported from their modules by the few that need them.
"""

from ostinato.store.accounts import AccountError, Accounts, Consent
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.phases import LedgerError, Phase, Stage
from ostinato.store.objects import AlreadyExists, Missing, Objects, ObjectsError, StorageFull
from ostinato.store.sql.errors import OutcomeUnknownError, StoreError, UnavailableError
from ostinato.store.store import KeyChangedError, PurgedError, Store, TakenError
from ostinato.store.watch import Watch

__all__ = [
    "AccountError",
    "Accounts",
    "AlreadyExists",
    "Consent",
    "KeyChangedError",
    "Ledger",
    "LedgerError",
    "Missing",
    "Objects",
    "ObjectsError",
    "OutcomeUnknownError",
    "Phase",
    "PurgedError",
    "Stage",
    "StorageFull",
    "Store",
    "StoreError",
    "TakenError",
    "UnavailableError",
    "Watch",
]
