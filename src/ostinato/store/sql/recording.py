"""The transaction that every turn of every session goes through, and nothing else.

On SQLite it runs on a connection of the driver's own, with statements that were compiled once: the work that
SQLAlchemy does for one transaction costs several times what the database does in it. On other databases it
runs on a connection of SQLAlchemy.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Connection, Select, Table, bindparam, select, update
from sqlalchemy.dialects import sqlite

from ostinato.store.sql import schema
from ostinato.store.sql.chunks import chunks

log = logging.getLogger(__name__)
EVERY_ROWS = 2_000
"""Rows between two copies of the log. A turn that is recorded during one waits for the disk, in part: 9 ms at
its p99 instead of 0.6. A copy takes little longer for more rows, so they are rare enough that fewer
than one turn in a hundred meets one."""
EVERY_BYTES = 32 * 2**20
"""Bytes of tokens between two copies, which bounds the log where prompts are long."""
MOST_PAGES = 16_384
"""Pages in the log above which writers are made to start it again."""
RESTART_MS = 20
"""The longest time that writers wait for the log to start again; if readers prevent it, the next copy
tries."""
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
"""Built once, because it runs within every transaction that records turns."""
IS_PURGED = "SELECT 1 FROM purges WHERE session_id = ?"
HAS_SESSION = "SELECT 1 FROM sessions WHERE id = ?"
LAST_TURN = "SELECT max(number) FROM turns WHERE session_id = ?"
NAMED = sqlite.dialect(paramstyle="named")


class Recording(Protocol):
    """One transaction in which turns are recorded."""

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert rows of all columns, except those whose key is already there. Return how many are new."""
        ...

    def all(self, query: Select[Any], values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query whose parameters are named in `values`."""
        ...

    def end(self, endings: Sequence[Mapping[str, str]]) -> None:
        """Set how sessions ended, given as `{session, how}`; the first ending stays."""
        ...

    def purged_of(self, session_ids: Sequence[str]) -> str | None:
        """Return one of these sessions that was purged, or None."""
        ...


class SqlAlchemyRecording:
    """A recording on any database, through SQLAlchemy."""

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
            purged: str | None = self._connection.scalar(PURGED_OF, {"ids": ids})
            if purged is not None:
                return purged
        return None


class SqliteRecording:
    """Recordings on a SQLite file; the caller makes sure that there is one transaction at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connection, self._reader = connect(), connect()
        self._connection.execute("PRAGMA wal_autocheckpoint=0")
        self._log = LogCopier(connect())
        self._bytes = 0

    def close(self) -> None:
        self._log.close()
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
        self._log.copy_when_due(self._connection.total_changes, self._bytes)

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        self._bytes += sum(len(value) for row in rows for value in row.values() if type(value) is bytes)
        return self._connection.executemany(_insert(table), rows).rowcount if rows else 0

    def all(self, query: Select[Any], values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_compiled(query), values).fetchall()

    def end(self, endings: Sequence[Mapping[str, str]]) -> None:
        if endings:
            self._connection.executemany(_compiled(SET_ENDING), endings)

    def purged_of(self, session_ids: Sequence[str]) -> str | None:
        for id_ in session_ids:
            if self._connection.execute(IS_PURGED, (id_,)).fetchone() is not None:
                return id_
        return None

    def has_session(self, id_: str) -> bool:
        """Return whether a session is stored.

        It has a connection of its own, so that it waits for no writer.
        """
        return self._reader.execute(HAS_SESSION, (id_,)).fetchone() is not None

    def recorded_turns(self, session_id: str) -> int:
        """Return one more than the number of the last turn, read from the index on that same connection."""
        (last,) = self._reader.execute(LAST_TURN, (session_id,)).fetchone()
        return 0 if last is None else int(last) + 1


class LogCopier:
    """Copies SQLite's write-ahead log into the database, in a thread of its own.

    Otherwise the commit that fills the log would do it, and every turn would wait for its flushes to the
    disk.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.execute(f"PRAGMA busy_timeout={RESTART_MS}")
        self._changes = self._bytes = 0
        self._under_way = threading.Lock()

    def copy_when_due(self, changes: int, bytes_written: int) -> None:
        """Start a copy when there is enough to copy.

        `changes` and `bytes_written` are the number of rows and of bytes of tokens written so far.
        """
        due = changes - self._changes >= EVERY_ROWS or bytes_written - self._bytes >= EVERY_BYTES
        if due and self._under_way.acquire(blocking=False):
            self._changes, self._bytes = changes, bytes_written
            threading.Thread(target=self._run, name="checkpoint").start()

    def close(self) -> None:
        """Wait for the copy that is under way, and close the connection."""
        with self._under_way:
            self._connection.close()

    def _run(self) -> None:
        try:
            _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finish_scrub(self._connection)
            if (
                pages > MOST_PAGES
            ):  # while turns are always being written it would never start again by itself
                self._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error as error:
            log.warning("the write-ahead log could not be copied into the database and grows: %s", error)
        finally:
            self._under_way.release()


@cache
def _insert(table: Table) -> str:
    return str(sqlite.insert(table).on_conflict_do_nothing().compile(dialect=NAMED))


@cache
def _compiled(statement: Any) -> str:
    return str(statement.compile(dialect=NAMED))


def finish_scrub(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log if a purge is waiting for that; wait for readers as long as `connection`
    does.

    Return False, and leave it to the next caller, when a reader still holds the log.
    """
    waiting = connection.execute("SELECT value FROM counters WHERE name = 'scrub' AND value > 0").fetchone()
    if waiting is None:
        return True
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not busy:  # a purge that began meanwhile has raised the value, and waits for the next scrub
        connection.execute("UPDATE counters SET value = 0 WHERE name = 'scrub' AND value = ?", waiting)
    return not busy
