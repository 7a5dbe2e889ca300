"""The two kinds of database, by what each does in its own way: a SQLite file, a PostgreSQL server."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Select, Table, bindparam, update

from ostinato.store.sql import schema

SET_ENDING = (
    update(schema.sessions)
    .where(schema.sessions.c.id == bindparam("session"), schema.sessions.c.ending.is_(None))
    .values(ending=bindparam("how"))
)


class Recording(Protocol):
    """One transaction in which turns are recorded."""

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert rows of all columns, except those whose key is already there. Return how many are new."""
        ...

    def contexts_before(
        self, turns: Sequence[tuple[str, int]], most: int
    ) -> Sequence[Sequence[tuple[int, int, bytes]]]:
        """Return the number, length and digest of the contexts of the `most` turns before each of these,
        which are given by session and number."""
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


class SqlBackend(Protocol):
    """One database. Its errors are those of SQLAlchemy and of the driver."""

    engine: Engine

    def insert(self, table: Table) -> Any:
        """Return an insert that knows ON CONFLICT."""
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one consistent snapshot."""
        ...

    def write(self) -> AbstractContextManager[Connection]:
        """Yield a connection inside a transaction beside which there is no other write or recording."""
        ...

    def prepare_recording(self) -> None:
        """Get ready for `recording`, once the tables are there."""
        ...

    def recording(self) -> AbstractContextManager[Recording]:
        """Yield a transaction beside which there is no write; one thread has it at a time."""
        ...

    def lacks_session(self, id_: str) -> bool: ...

    def recorded_turns(self, session_id: str) -> int: ...

    def must_scrub(self, connection: Connection) -> None: ...

    def scrub(self, patience_s: float) -> bool: ...

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each table with its indexes; empty where the database does not say."""
        ...

    def vacuum(self) -> None:
        """Give the place of removed values back, beside other processes that have the database open."""
        ...

    def close(self) -> None: ...
