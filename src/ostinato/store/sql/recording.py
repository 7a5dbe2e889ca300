"""The transaction that every turn of every session goes through, and nothing else.

On SQLite it runs on the driver's own connection, with statements compiled once: SQLAlchemy's work for one
transaction costs several times what the database does in it. Elsewhere it is SQLAlchemy's connection.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Connection, Select, Table, bindparam, literal_column, or_, select, update
from sqlalchemy.dialects import sqlite

from ostinato.store.sql import schema

log = logging.getLogger(__name__)
EVERY_ROWS = 150
"""Often and little: a turn that comes while a log is copied waits for the disk, in part."""
MOST_PAGES = 16_384
RESTART_MS = 20
"""How long a log may keep writers waiting to start again; if readers do not let it, the next one tries."""
CHUNK = 500
"""Ids in one SELECT … IN: databases limit the number of parameters."""
SET_ENDING = (
    update(schema.sessions)
    .where(schema.sessions.c.id == bindparam("session"), schema.sessions.c.ending.is_(None))
    .values(ending=bindparam("how"))
)
PURGED_OF = (
    select(schema.purges.c.session_id)
    .where(schema.purges.c.session_id.in_(bindparam("ids", expanding=True)))
    .limit(1)
)
"""Built once: it runs within every transaction that records turns."""
SAID = (
    select(schema.consents.c.user, schema.consents.c.granted)
    .where(
        schema.consents.c.organisation == bindparam("organisation"),
        or_(schema.consents.c.user == bindparam("user"), schema.consents.c.user == literal_column("''")),
    )
    .order_by(schema.consents.c.order)
)
KEY = select(schema.keys.c.user, schema.keys.c.organisation, schema.keys.c.revoked_at).where(
    schema.keys.c.hash == bindparam("hash")
)
IS_PURGED = "SELECT 1 FROM purges WHERE session_id = ?"
HAS_SESSION = "SELECT 1 FROM sessions WHERE id = ?"
LAST_TURN = "SELECT max(number) FROM turns WHERE session_id = ?"
NAMED = sqlite.dialect(paramstyle="named")


class Recording(Protocol):
    """One transaction."""

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        """Rows of all columns; those whose key is already there are left alone. Returns how many are new."""
        ...

    def all(self, query: Select[Any], values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows that a query finds, whose parameters are named in `values`."""
        ...

    def end(self, endings: Sequence[Mapping[str, str]]) -> None:
        """How sessions ended, as `{session, how}`; the first ending stays."""
        ...

    def purged_of(self, session_ids: Sequence[str]) -> str | None:
        """One of these sessions that was purged."""
        ...


class Portable:
    """On any database."""

    def __init__(self, connection: Connection, insert_new: Any) -> None:
        self._connection = connection
        self._insert_new = insert_new

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        return sum(self._connection.execute(self._insert_new(table), row).rowcount for row in rows)

    def all(self, query: Select[Any], values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(query, values).all()

    def end(self, endings: Sequence[Mapping[str, str]]) -> None:
        if endings:
            self._connection.execute(SET_ENDING, endings)

    def purged_of(self, session_ids: Sequence[str]) -> str | None:
        for ids in chunks(session_ids):
            gone: str | None = self._connection.scalar(PURGED_OF, {"ids": ids})
            if gone is not None:
                return gone
        return None


class Direct:
    """On a SQLite file; the caller sees to it that there is one transaction at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connection, self._reader = connect(), connect()
        self._connection.execute("PRAGMA wal_autocheckpoint=0")
        self._checkpoints = Checkpoints(connect())

    def close(self) -> None:
        self._checkpoints.close()
        self._connection.close()
        self._reader.close()

    @contextmanager
    def transaction(self) -> Iterator[Recording]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._checkpoints.after(self._connection.total_changes)

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        return self._connection.executemany(_insert(table), rows).rowcount if rows else 0

    def all(self, query: Select[Any], values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_query(query), values).fetchall()

    def end(self, endings: Sequence[Mapping[str, str]]) -> None:
        if endings:
            self._connection.executemany(_ending(), endings)

    def purged_of(self, session_ids: Sequence[str]) -> str | None:
        for id_ in session_ids:
            if self._connection.execute(IS_PURGED, (id_,)).fetchone() is not None:
                return id_
        return None

    def has_session(self, id_: str) -> bool:
        """On a connection of its own: it waits for no writer."""
        return self._reader.execute(HAS_SESSION, (id_,)).fetchone() is not None

    def recorded_turns(self, session_id: str) -> int:
        """On the same connection; the index answers it."""
        (last,) = self._reader.execute(LAST_TURN, (session_id,)).fetchone()
        return 0 if last is None else int(last) + 1


class Checkpoints:
    """Copies SQLite's write-ahead log into the database in a thread of its own.

    The commit that fills the log would do it else, and its fsyncs would be waited for by every turn.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.execute(f"PRAGMA busy_timeout={RESTART_MS}")
        self._changes = 0
        self._under_way = threading.Lock()

    def after(self, changes: int) -> None:
        """Start one when there is enough to copy; `changes`: rows written so far."""
        if changes - self._changes >= EVERY_ROWS and self._under_way.acquire(blocking=False):
            self._changes = changes
            threading.Thread(target=self._run, name="checkpoint").start()

    def close(self) -> None:
        """Waits for the one under way."""
        with self._under_way:
            self._connection.close()

    def _run(self) -> None:
        try:
            _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finish_scrub(self._connection)
            if pages > MOST_PAGES:  # with a turn always being written it would never start again by itself
                self._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error as error:
            log.warning("the log could not be copied into the database, it grows: %s", error)
        finally:
            self._under_way.release()


@cache
def _insert(table: Table) -> str:
    return str(sqlite.insert(table).on_conflict_do_nothing().compile(dialect=NAMED))


@cache
def _query(query: Select[Any]) -> str:
    return str(query.compile(dialect=NAMED))


@cache
def _ending() -> str:
    return str(SET_ENDING.compile(dialect=NAMED))


def agrees(said: Iterable[Sequence[Any]], organisation: str, user: str) -> bool:
    """By the words of a user and of their organisation, as (user, granted), oldest first; no word is no."""
    last: dict[str, bool] = {row[0]: row[1] for row in said}
    return bool(last.get(user)) and (not organisation or bool(last.get("")))


def finish_scrub(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log where a purge is waiting for it; waits for readers as the connection is set.

    Returns False, and leaves it to the next one, when a reader still holds the log.
    """
    waiting = connection.execute("SELECT value FROM counters WHERE name = 'scrub' AND value > 0").fetchone()
    if waiting is None:
        return True
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not busy:  # a purge that came meanwhile has raised the value, and waits for the next one
        connection.execute("UPDATE counters SET value = 0 WHERE name = 'scrub' AND value = ?", waiting)
    return not busy


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Pieces of `ids` small enough for one SELECT … IN."""
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))
