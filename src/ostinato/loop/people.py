"""Traces of real people in a store, as opposed to those of a demo's simulated developers."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ostinato.store import StoreError

RUN_USERS = ("bench", "practice", "search", "simulator", "teacher")
"""Users in whose name a run calls its own gateway."""
SIMULATED = "SELECT user FROM consents WHERE set_by = 'simulation'"
REAL = f"user NOT IN ({SIMULATED}) AND user NOT IN ({', '.join('?' * len(RUN_USERS))})"
LEFT = {
    "keys": "keys WHERE revoked_at IS NULL",
    "words on consent": "consents WHERE true",
    "live sessions": "sessions WHERE source = 'live' AND id NOT IN (SELECT session_id FROM purges)",
}


def people(store: Path) -> str:
    """Name what people left there, such as `1 keys, 3 live sessions`; empty when there is nothing.

    Any layout of the store is read, since one that this release cannot open may hold people's data too.
    Raises StoreError when it cannot be read, since it may hold people's data then.
    """
    if not store.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            counts = {
                name: connection.execute(f"SELECT count(*) FROM {rows} AND {REAL}", RUN_USERS).fetchone()[0]  # noqa: S608
                for name, rows in LEFT.items()
            }
    except sqlite3.Error as error:
        raise StoreError(f"{store}: {error}: it may hold people's data, so it is kept") from error
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n)
