"""The SQL database behind the record: opening it, beginning transactions, and translating its errors."""

import os
import sqlite3
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    inspect,
    make_url,
    not_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from ostinato.store.sql.recording import Recording, SqlAlchemyRecording, SqliteRecording, finish_scrub
from ostinato.store.sql.schema import METADATA, SCHEMA, counters
from ostinato.store.sql.upgrade import OLDEST, upgrade

BUSY_S = 30.0
"""The longest time that a writer waits for the transaction of another process, seconds."""
SCRUB_S = 5.0
"""The longest time that a purge waits for readers of the pages it removed, seconds."""
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",  # a promise outlives a power failure; `_sqlite_recording` relaxes it for turns
    "foreign_keys=ON",
    "temp_store=MEMORY",
    "secure_delete=ON",  # purged rows are overwritten, not only forgotten
)
INSERTS: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class StoreError(Exception):
    """The record could not be read or written; the message says what, where and what to do."""


class Database:
    """A database that any number of processes and threads may open at once; each write is one transaction."""

    def __init__(self, url_or_path: str | Path) -> None:
        self.url = _url(url_or_path)
        self.where = self.url.render_as_string(hide_password=True)
        self.engine = _engine(self.url)
        _keep_private(self.url)
        self._writer = self.engine.execution_options(immediate=True)
        self._turn_to_write = threading.Lock()
        opened = ExitStack()
        opened.callback(self.engine.dispose)
        self.close = weakref.finalize(self, opened.close)
        """Close every connection; this happens by itself when nothing refers to the database any more."""
        self.insert_new = cache(self._insert_new)
        with self.write() as connection:
            _create(connection, self.where)
        self.scrub(patience_s=0.0)  # in case an earlier purge could not finish it
        self._sqlite = _sqlite_recording(self.url)
        if self._sqlite is not None:
            opened.callback(self._sqlite.close)

    def _insert_new(self, table: Table) -> Any:
        """Return an insert that leaves rows alone whose key is already there."""
        return INSERTS[self.engine.dialect.name](table).on_conflict_do_nothing()

    def upsert(self, table: Table, *changed: str, unless: Any = None) -> Any:
        """Return an insert that overwrites the columns `changed` where the key is there already.

        Rows that satisfy `unless` stay as they are.
        """
        insert = INSERTS[self.engine.dialect.name](table)
        return insert.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={name: insert.excluded[name] for name in changed},
            where=None if unless is None else not_(unless),
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that sees one consistent snapshot."""
        with _translated(self.where), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction that holds the write lock from its first statement on."""
        # Threads of one process queue here, because SQLite's own waiting polls.
        with self._turn_to_write, _translated(self.where), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Yield the transaction in which turns are recorded; it begins faster than that of `write`."""
        if self._sqlite is None:
            with self.write() as connection:
                yield SqlAlchemyRecording(connection, self.insert_new)
            return
        with self._turn_to_write, _translated(self.where), self._sqlite.transaction() as recording:
            yield recording

    def lacks_session(self, id_: str) -> bool:
        """Return True when a look-up in a local file shows no such session; False on other databases."""
        if self._sqlite is None:
            return False
        with _translated(self.where):
            return not self._sqlite.has_session(id_)

    def recorded_turns(self, session_id: str) -> int:
        """Return one more than the last turn's number, looked up in a local file; 0 on other databases."""
        if self._sqlite is None:
            return 0
        with _translated(self.where):
            return self._sqlite.recorded_turns(session_id)

    def must_scrub(self, connection: Connection) -> None:
        """Note, inside a transaction, that after its commit the log holds purged pages until `scrub`."""
        if self.engine.dialect.name == "sqlite":
            connection.execute(self.insert_new(counters), {"name": "scrub", "value": 0})
            scrub = update(counters).where(counters.c.name == "scrub")
            connection.execute(scrub.values(value=counters.c.value + 1))

    def scrub(self, patience_s: float = SCRUB_S) -> bool:
        """Empty SQLite's write-ahead log after a purge, because old pages lie in it until it is used again.

        Wait `patience_s` for connections that still read older pages. Return False when that was not enough:
        then the next process that opens the store does it, or a gateway that has it open.
        """
        if self.engine.dialect.name != "sqlite":
            return True
        with _translated(self.where), self.engine.connect() as pooled:
            connection: Any = pooled.connection.dbapi_connection
            connection.execute(f"PRAGMA busy_timeout={int(1000 * patience_s)}").close()
            try:
                return finish_scrub(connection)
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(1000 * BUSY_S)}").close()


def is_open_elsewhere(path: Path) -> bool:
    """Return whether another connection, of any process, has the SQLite file open.

    Raises StoreError when the file cannot be read.
    """
    if not path.exists():
        return False
    with _translated(str(path)), closing(sqlite3.connect(path, timeout=0.0)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return True
    return False


def _url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(url_or_path))
    try:
        return make_url(url_or_path)
    except ArgumentError as error:
        raise StoreError(f"{url_or_path!r} is neither a file path nor a database URL: {error}") from error


def _engine(url: URL) -> Engine:
    dialect = url.get_backend_name()
    if dialect not in INSERTS:
        raise StoreError(f"{dialect} databases are not supported: use one of {', '.join(INSERTS)}")
    if dialect != "sqlite":
        return create_engine(url)
    if url.database in {None, "", ":memory:"}:
        raise StoreError("a store is shared by several processes: give a file path, not a database in memory")
    engine = create_engine(url, connect_args={"timeout": BUSY_S}, pool_size=8, max_overflow=24)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _keep_private(url: URL) -> None:
    """Let only the owner read the file, and the log beside it, which takes over its permissions."""
    if url.get_backend_name() != "sqlite" or url.database is None or url.query:
        return
    try:
        with suppress(FileExistsError):
            os.close(os.open(url.database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # An existing file is not opened: closing it would drop the locks of this process's other connections.
        if Path(url.database).stat().st_uid == os.geteuid():
            Path(url.database).chmod(0o600)
    except OSError as error:
        raise StoreError(f"{url.database}: {error.strerror}: {ADVICE['unable to open']}") from error


def _sqlite_recording(url: URL) -> SqliteRecording | None:
    path = url.database
    if url.get_backend_name() != "sqlite" or url.query or path is None:
        return None

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
        _configure(connection, None)
        connection.execute("PRAGMA synchronous=NORMAL").close()
        return connection

    with _translated(path):
        return SqliteRecording(connect)


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin` sends BEGIN itself
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def _create(connection: Connection, where: str) -> None:
    layout = None
    if inspect(connection).has_table(counters.name):
        layout = connection.scalar(select(counters.c.value).where(counters.c.name == "schema"))
    if layout is None:
        METADATA.create_all(connection)
        connection.execute(counters.insert(), {"name": "schema", "value": SCHEMA})
    elif OLDEST <= layout < SCHEMA:
        upgrade(connection, layout)
    elif layout != SCHEMA:
        raise StoreError(
            f"{where} has layout {layout}, this version of ostinato reads {SCHEMA}: use another file"
        )


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, struct.error, OverflowError) as error:
        cause = str(getattr(error, "orig", None) or error)
        raise StoreError(f"{where}: {cause}{_advice(cause)}") from error


def _advice(cause: str) -> str:
    for text, advice in ADVICE.items():
        if text in cause:
            return f": {advice}"
    return ""


ADVICE = {
    "unable to open": "check that the folder exists and is writable",
    "locked": f"another process held the database for more than {BUSY_S:.0f} s; look for a suspended one",
    "disk is full": "nothing of this transaction was recorded; free space and try again",
    "not a database": "this file was not written by ostinato, choose another path",
    "malformed": "the file is damaged, restore it from a copy",
    "FOREIGN KEY": "a row names a session that was never started; call start_session first or pass sessions=",
}
