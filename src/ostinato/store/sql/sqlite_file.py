"""A record in one SQLite file, which processes of one machine share.

Its turns are recorded on a connection of the driver's own, with statements that were compiled once: the work
that SQLAlchemy does for one transaction costs several times what the database does in it.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Select, Table, create_engine, event, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import OperationalError

from ostinato.store.sql.backend import SET_ENDING, Recording
from ostinato.store.sql.errors import ADVICE, BUSY_S, StoreError, translated
from ostinato.store.sql.schema import counters

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
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",  # a promise outlives a power failure; recordings relax it for turns
    "foreign_keys=ON",
    "temp_store=MEMORY",
    "secure_delete=ON",  # purged rows are overwritten, not only forgotten
)
IS_PURGED = "SELECT 1 FROM purges WHERE session_id = ?"
HAS_SESSION = "SELECT 1 FROM sessions WHERE id = ?"
LAST_TURN = "SELECT max(number) FROM turns WHERE session_id = ?"
SIZES = "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m USING (name) GROUP BY m.tbl_name"
CONTEXTS = (
    "SELECT number, length, digest FROM turns "
    "WHERE session_id = ? AND number < ? AND number >= ? AND length IS NOT NULL"
)
"""One look-up in the index of a session's turns, which holds these columns."""
NAMED = sqlite.dialect(paramstyle="named")


class SqliteFile:
    """The backend of a SQLite file."""

    def __init__(self, url: URL, *, read_only: bool = False) -> None:
        if url.database in {None, "", ":memory:"}:
            raise StoreError(
                "a store is shared by several processes: give a file path, not a database in memory"
            )
        self._url = url
        self.engine = _engine(_only_read(url) if read_only else url)
        self._writer = self.engine.execution_options(immediate=True)
        if not read_only:
            _keep_private(url)
        self._recordings: SqliteRecording | None = None

    def insert(self, table: Table) -> Any:
        return sqlite.insert(table)

    def read(self) -> AbstractContextManager[Connection]:
        return self.engine.begin()

    def write(self) -> AbstractContextManager[Connection]:
        return self._writer.begin()

    def prepare_recording(self) -> None:
        self._recordings = SqliteRecording(self._connect)

    def recording(self) -> AbstractContextManager[Recording]:
        return self._prepared.transaction()

    @property
    def _prepared(self) -> "SqliteRecording":
        if self._recordings is None:
            raise StoreError(f"{self._url.database}: the file was closed")
        return self._recordings

    def _connect(self) -> sqlite3.Connection:
        (path,), options = self.engine.dialect.create_connect_args(self._url)
        connection: sqlite3.Connection = sqlite3.connect(
            path, **{"timeout": BUSY_S, **options, "check_same_thread": False}
        )
        _configure(connection, None)
        connection.execute("PRAGMA synchronous=NORMAL").close()
        return connection

    def lacks_session(self, id_: str) -> bool:
        return not self._prepared.has_session(id_)

    def recorded_turns(self, session_id: str) -> int:
        return self._prepared.recorded_turns(session_id)

    def must_scrub(self, connection: Connection) -> None:
        new = sqlite.insert(counters).on_conflict_do_nothing()
        connection.execute(new, {"name": "scrub", "value": 0})
        scrub = update(counters).where(counters.c.name == "scrub")
        connection.execute(scrub.values(value=counters.c.value + 1))

    def scrub(self, patience_s: float) -> bool:
        """Empty the write-ahead log, because old pages lie in it until it is used again."""
        with self.engine.connect() as pooled:
            connection: Any = pooled.connection.dbapi_connection
            connection.execute(f"PRAGMA busy_timeout={int(1000 * patience_s)}").close()
            try:
                return finish_scrub(connection)
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(1000 * BUSY_S)}").close()

    def sizes(self) -> dict[str, int]:
        with self.engine.connect() as connection:
            try:
                rows = connection.exec_driver_sql(SIZES).all()
            except OperationalError:  # this SQLite was built without the table `dbstat`
                return {}
        return {row[0]: row[1] for row in rows}

    def vacuum(self) -> None:
        """Write the file anew without its empty pages; this waits for other writers, as any write does."""
        with self.engine.connect() as pooled:
            connection: Any = pooled.connection.dbapi_connection
            connection.execute("VACUUM").close()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def close(self) -> None:
        if self._recordings is not None:
            self._recordings.close()
            self._recordings = None
        self.engine.dispose()


def is_open_elsewhere(path: Path) -> bool:
    """Return whether another connection, of any process, has the SQLite file open.

    Raises StoreError when the file cannot be read.
    """
    if not path.exists():
        return False
    with translated(str(path)), closing(sqlite3.connect(path, timeout=0.0)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return True
    return False


def _engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_S}, pool_size=8, max_overflow=24)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _only_read(url: URL) -> URL:
    """Return the URL of a file by which SQLite itself refuses to change it, or to create it."""
    return url.set(database=f"file:{quote(url.database or '')}").update_query_dict(
        {"mode": "ro", "uri": "true"}
    )


def _keep_private(url: URL) -> None:
    """Let only the owner read the file, and the log beside it, which takes over its permissions."""
    if url.database is None or url.query:
        return
    try:
        with suppress(FileExistsError):
            os.close(os.open(url.database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # An existing file is not opened: closing it would drop the locks of this process's other connections.
        if Path(url.database).stat().st_uid == os.geteuid():
            Path(url.database).chmod(0o600)
    except OSError as error:
        raise StoreError(f"{url.database}: {error.strerror}: {ADVICE['unable to open']}") from error


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin` sends BEGIN itself
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


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

    def contexts_before(
        self, turns: Sequence[tuple[str, int]], most: int
    ) -> Sequence[Sequence[tuple[int, int, bytes]]]:
        return [
            self._connection.execute(CONTEXTS, (session, number, number - most)).fetchall()
            for session, number in turns
        ]

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
