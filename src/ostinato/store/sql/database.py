"""The SQL database behind the record: opening it, and beginning transactions in it."""

import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, inspect, make_url, not_, select
from sqlalchemy.exc import ArgumentError

from ostinato.store.sql.backend import Recording, SqlBackend
from ostinato.store.sql.errors import StoreError, UnavailableError, repeated, translated
from ostinato.store.sql.postgres import PostgresServer
from ostinato.store.sql.schema import METADATA, SCHEMA, counters
from ostinato.store.sql.sqlite_file import SqliteFile

SCRUB_S = 5.0
"""The longest time that a purge waits for readers of the pages it removed, seconds."""
TURN_S = 60.0
"""The longest time that a thread waits for the transactions of other threads of its process, seconds."""


class Database:
    """A database that any number of processes and threads may open at once; each write is one transaction."""

    def __init__(self, url_or_path: str | Path, *, read_only: bool = False) -> None:
        """Open, and create where it is missing; with `read_only` a database that is there, as it is."""
        self.url = read_url(url_or_path)
        self.where = self.url.render_as_string(hide_password=True)
        self._read_only = read_only
        self._backend = _backend(self.url, read_only=read_only)
        self._turn_to_write = threading.Lock()
        self.close = weakref.finalize(self, self._backend.close)
        """Close every connection; this happens by itself when nothing refers to the database any more."""
        self.insert_new = cache(self._insert_new)
        if read_only:
            repeated(self._check)
            return
        repeated(self._create)
        self.scrub(patience_s=0.0)  # in case an earlier purge could not finish it
        with translated(self.where):
            self._backend.prepare_recording()

    def _create(self) -> None:
        with self.write() as connection:
            _create(connection, self.where)

    def _check(self) -> None:
        with self.read() as connection:
            _refuse_other(_layout(connection), self.where)

    @property
    def engine(self) -> Engine:
        return self._backend.engine

    def _insert_new(self, table: Table) -> Any:
        """Return an insert that leaves rows alone whose key is already there."""
        return self._backend.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table, *changed: str, unless: Any = None) -> Any:
        """Return an insert that overwrites the columns `changed` where the key is there already.

        Rows that satisfy `unless` stay as they are.
        """
        insert = self._backend.insert(table)
        return insert.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={name: insert.excluded[name] for name in changed},
            where=None if unless is None else not_(unless),
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that sees one consistent snapshot."""
        with translated(self.where), self._backend.read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction; there is no other, of any process, until it ends."""
        # Threads of one process queue here, because SQLite's own waiting polls.
        with self._turn(), translated(self.where), self._backend.write() as connection:
            yield connection

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Yield the transaction in which turns are recorded; it begins faster than that of `write`."""
        with self._turn(), translated(self.where), self._backend.recording() as recording:
            yield recording

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._read_only:
            raise StoreError(f"{self.where} was opened to be read: nothing is written to it")
        if not self._turn_to_write.acquire(timeout=TURN_S):
            raise UnavailableError(
                f"{self.where}: other threads of this process have used it for {TURN_S:.0f} s; "
                "look whether the server hangs"
            )
        try:
            yield
        finally:
            self._turn_to_write.release()

    def lacks_session(self, id_: str) -> bool:
        """Return True when a look-up in a local file shows no such session; False on a server."""
        with translated(self.where):
            return self._backend.lacks_session(id_)

    def recorded_turns(self, session_id: str) -> int:
        """Return one more than the last turn's number, looked up in a local file; 0 on a server."""
        with translated(self.where):
            return self._backend.recorded_turns(session_id)

    def must_scrub(self, connection: Connection) -> None:
        """Note, inside a transaction, that purged rows lie in a file after its commit until `scrub`."""
        self._backend.must_scrub(connection)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each table with its indexes; empty where the database does not say."""
        with translated(self.where):
            return self._backend.sizes()

    def vacuum(self) -> None:
        """Give the place of removed values back, to the disk or to new values."""
        with self._turn(), translated(self.where):
            self._backend.vacuum()

    def scrub(self, patience_s: float = SCRUB_S) -> bool:
        """Remove purged rows from the files of the database, where the commit alone does not do that.

        Wait `patience_s` for connections that still read older pages. Return False when that was not enough:
        then the next process that opens the store does it, or a gateway that has it open.
        """
        with translated(self.where):
            return self._backend.scrub(patience_s)


def read_url(url_or_path: str | Path) -> URL:
    """Return the URL of a SQLite file or a server. Raises StoreError, which hides passwords, for neither."""
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(url_or_path))
    try:
        return make_url(url_or_path)
    except (ArgumentError, ValueError):  # which quote the URL, and a URL may hold a password
        shown = re.sub("//.*@", "//***@", url_or_path)
        raise StoreError(f"{shown!r} is neither a file path nor a database URL") from None


def _backend(url: URL, *, read_only: bool = False) -> SqlBackend:
    dialect = url.get_backend_name()
    if dialect == "sqlite":
        return SqliteFile(url, read_only=read_only)
    if dialect == "postgresql":
        return PostgresServer(url)  # whose `read` is read only by itself
    raise StoreError(f"{dialect} databases are not supported: use one of sqlite, postgresql")


def layout_of(url_or_path: str | Path) -> int | None:
    """Return the layout of a database, which is left as it is; None where there are no tables yet."""
    url = read_url(url_or_path)
    backend = _backend(url)
    try:
        with translated(url.render_as_string()), backend.read() as connection:
            return _layout(connection)
    finally:
        backend.close()


def _layout(connection: Connection) -> int | None:
    if not inspect(connection).has_table(counters.name):
        return None
    layout: int | None = connection.scalar(select(counters.c.value).where(counters.c.name == "schema"))
    return layout


def _create(connection: Connection, where: str) -> None:
    layout = _layout(connection)
    if layout is None:
        METADATA.create_all(connection)
        connection.execute(counters.insert(), {"name": "schema", "value": SCHEMA})
    else:
        _refuse_other(layout, where)


def _refuse_other(layout: int | None, where: str) -> None:
    if layout != SCHEMA:
        raise StoreError(
            f"{where} has layout {layout}, this version of ostinato reads {SCHEMA} alone and has changed "
            "nothing in it: name another file or database, or read this one with the version of ostinato "
            "that wrote it"
        )
