"""A record on a PostgreSQL server, which processes of any number of machines share.

SQLite's rule holds here too, by a lock of the server's: a write has the record for itself. Recordings hold
the lock together, because they only add rows that no other one adds, so any number of processes record at
once, and no transaction ever fails for the sake of another one. The server gives the lock back as soon as it
notices that a process died, after IDLE_S when it hangs, and after SPLIT_S when the network to it is split.

A connection that breaks in a commit leaves open what became of it. Every transaction knows its number, by
which the server is asked; only what it did not carry out is tried again. A server that crashed may have given
the number to another transaction since, so what it says then only counts as a no. Recordings are repeated
all the same: the same rows under the same ids change nothing.

Every commit is flushed to the server's disk before the call returns, recordings too: a server whose process
is killed would lose the others.
"""

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Select, Table, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from ostinato.store.sql.backend import SET_ENDING, Recording
from ostinato.store.sql.errors import (
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    passes,
    repeated,
    store_error,
    translated,
)
from ostinato.store.sql.postgres_connection import configure, engine_of, options_of

if TYPE_CHECKING:
    import psycopg

    from ostinato.store.sql.psycopg_watched import WatchedConnection

T = TypeVar("T")
LOCK = 0x6F7374696E61746F
"""The number of the lock of a database: the letters of the project's name."""
NUMBER = "SELECT pg_current_xact_id()::text"
ALONE = text(f"{NUMBER} FROM (SELECT pg_advisory_xact_lock(:lock)) AS locked")
TOGETHER = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared({LOCK}); {NUMBER}"
UNBORN = "22023"
"""The SQLSTATE of a question for a number that was not given yet: a crash took it with its transaction."""
FATE = text("SELECT pg_xact_status(cast(:transaction AS xid8))")
END = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_xid = cast(cast(:transaction AS xid8) AS xid)"
)
SIZES = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
"""
CONTEXTS = """
SELECT asked.place, turns.number, turns.length, turns.digest
FROM unnest(%(sessions)s::text[], %(numbers)s::bigint[]) WITH ORDINALITY AS asked (session, number, place)
JOIN turns ON turns.session_id = asked.session AND turns.number < asked.number
    AND turns.number >= asked.number - %(most)s AND turns.length IS NOT NULL
"""
"""One look-up for all turns of a call, since each question is a way to the server and back."""
PURGED_OF = "SELECT session_id FROM purges WHERE session_id = ANY(%(ids)s) LIMIT 1"
DIALECT: Any = postgresql.psycopg.dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]


class PostgresServer:
    """The backend of a database on a PostgreSQL server."""

    def __init__(self, url: URL) -> None:
        if url.drivername not in {"postgresql", "postgresql+psycopg"}:
            raise StoreError(f"{url.drivername} is not supported: write postgresql+psycopg://…")
        self._url = url.set(drivername="postgresql+psycopg")
        self.where = url.render_as_string(hide_password=True)
        self._connect_with = options_of(url)
        self.engine = engine_of(self._url, self._connect_with, self.where)
        read_only = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self.engine.execution_options(**read_only)
        self._errors = (DBAPIError, self.engine.dialect.loaded_dbapi.Error)
        self._recordings: PostgresRecording | None = None
        OPENED.add(self)

    def insert(self, table: Table) -> Any:
        return postgresql.insert(table)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._connected(self._reader) as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._connected(self.engine) as connection:
            transaction = connection.begin()
            try:
                name = connection.scalar(ALONE, {"lock": LOCK})
                incarnation = _incarnation(connection)
                yield connection
            except BaseException:
                with suppress(DBAPIError):
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                committed = passes(error) and self.was_committed(name, incarnation)
                if committed is None:
                    raise OutcomeUnknownError(
                        f"{self.where}: the server crashed in the commit of transaction {name}, and its "
                        "number may be another one's since. It was carried out as a whole or not at all: "
                        "read the record before you do it again"
                    ) from error
                if not committed:
                    raise

    def was_committed(self, transaction: str, incarnation: str | None) -> bool | None:
        """Return what became of a transaction whose commit got no answer; end it where it still goes on.

        Return None when a server that crashed since then says yes of the number, which may be another one's.
        Raises OutcomeUnknownError when the server does not say for PATIENCE_S.
        """
        number = {"transaction": transaction}

        def ended() -> bool | None:
            with translated(self.where), self._connected(self.engine) as connection, connection.begin():
                crashed = _incarnation(connection) != incarnation
                fate = _fate(connection, number)
                if fate == "in progress" and not crashed:
                    connection.execute(END, number)
            if crashed:
                return None if fate in {"committed", None} else False
            if fate == "in progress":
                raise UnavailableError(f"{self.where}: the server does not end transaction {transaction}")
            if fate is None:
                raise StoreError(f"{self.where}: the server has forgotten transaction {transaction}")
            return bool(fate == "committed")

        try:
            return repeated(ended, anew=True)
        except StoreError as error:
            raise OutcomeUnknownError(
                f"{self.where}: the answer to the commit of transaction {transaction} was lost, and the "
                "server did not say what became of it. It was carried out as a whole or not at all: "
                "recording the same ids again is safe, and once the server responds "
                f"SELECT pg_xact_status('{transaction}') says which. The last failure: {error}"
            ) from error

    def _connected(self, engine: Engine) -> Connection:
        return self._waited(engine.connect)

    def _waited(self, connect: Callable[[], T]) -> T:
        """Return a connection; wait for a server that takes none at the moment, PATIENCE_S at the longest."""

        def connected() -> T:
            try:
                return connect()
            except self._errors as error:
                raise store_error(self.where, error) from error

        return repeated(connected)

    def prepare_recording(self) -> None:
        self._recordings = PostgresRecording(self)

    def recording(self) -> Any:
        if self._recordings is None:
            raise StoreError(f"{self.where}: the database was closed")
        return self._recordings.transaction()

    def own_connection(self) -> "WatchedConnection":
        """Return a connection of the driver's, outside of the pool, that sends BEGIN itself."""
        from ostinato.store.sql.psycopg_watched import WatchedConnection

        _, options = self.engine.dialect.create_connect_args(self._url)
        connection = self._waited(lambda: WatchedConnection.to({**options, **self._connect_with}))
        configure(connection)
        connection.autocommit = True
        return connection

    def lacks_session(self, id_: str) -> bool:
        return False

    def recorded_turns(self, session_id: str) -> int:
        return 0

    def must_scrub(self, connection: Connection) -> None:
        """Do nothing: the server reuses the place of removed rows, and has no file that we may empty."""

    def scrub(self, patience_s: float) -> bool:
        return True

    def sizes(self) -> dict[str, int]:
        with self.read() as connection:
            return {row[0]: row[1] for row in connection.exec_driver_sql(SIZES)}

    def vacuum(self) -> None:
        """Mark the place of removed values as free for new ones; the server's files do not shrink."""
        with closing(self.own_connection()) as connection:
            connection.execute("SET statement_timeout = 0")
            connection.longest_s = None
            connection.execute("VACUUM (ANALYZE)")

    def close(self) -> None:
        if self._recordings is not None:
            self._recordings.close()
            self._recordings = None
        self.engine.dispose()

    def forget(self) -> None:
        """Let go of the connections of the process that this one was forked from, and leave them open."""
        self.engine.dispose(close=False)
        if self._recordings is not None:
            self._recordings = PostgresRecording(self)


OPENED: "weakref.WeakSet[PostgresServer]" = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(OPENED):
        server.forget()


os.register_at_fork(after_in_child=_after_fork)


class PostgresRecording:
    """Recordings on one connection, in statements of the driver's own; one thread at a time."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._open: WatchedConnection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @contextmanager
    def transaction(self) -> Iterator[Recording]:
        import psycopg

        try:
            number = self._begin()
            yield self
            self._commit(number)
        except psycopg.Error as error:
            self._roll_back()
            raise store_error(self._server.where, error) from error
        except BaseException:
            self._roll_back()
            raise

    def _begin(self) -> str:
        """Begin on the connection, or on a new one when that is broken; return the transaction's number."""
        import psycopg

        from ostinato.store.sql.psycopg_watched import NoAnswerError

        if self._open is not None:
            try:
                return _begun(self._open)
            except psycopg.OperationalError as error:
                if not self._open.closed or isinstance(error, NoAnswerError):
                    raise
        self._open = self._server.own_connection()
        return _begun(self._open)

    def _commit(self, number: str) -> None:
        import psycopg

        connection = self._connection
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            # None is as good as a no: the recording is repeated, and finds its rows there or not.
            if not passes(error) or not self._server.was_committed(number, connection.incarnation):
                raise
            self._roll_back()

    def _roll_back(self) -> None:
        import psycopg

        if self._open is None:
            return
        try:
            self._open.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    @property
    def _connection(self) -> "WatchedConnection":
        if self._open is None:
            raise StoreError(f"{self._server.where}: the database was closed")
        return self._open

    def insert_new(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        if not rows:
            return 0
        # All processes take the rows of a table in one order, so that no two wait for each other.
        ordered = sorted(rows, key=lambda row: str(row["id"]))
        with self._connection.cursor() as cursor:
            cursor.executemany(_insert(table), ordered)
            return cursor.rowcount

    def contexts_before(
        self, turns: Sequence[tuple[str, int]], most: int
    ) -> Sequence[Sequence[tuple[int, int, bytes]]]:
        found: list[list[tuple[int, int, bytes]]] = [[] for _ in turns]
        if turns:
            sessions, numbers = zip(*turns, strict=True)
            asked = {"sessions": list(sessions), "numbers": list(numbers), "most": most}
            for place, *context in self._connection.execute(CONTEXTS, asked):
                found[place - 1].append((context[0], context[1], context[2]))
        return found

    def all(self, query: Select[Any], values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_compiled(query), values).fetchall()

    def end(self, endings: Sequence[Mapping[str, str]]) -> None:
        if endings:
            ordered = sorted(endings, key=lambda each: each["session"])
            with self._connection.cursor() as cursor:
                cursor.executemany(_compiled(SET_ENDING), ordered)

    def purged_of(self, session_ids: Sequence[str]) -> str | None:
        found = self._connection.execute(PURGED_OF, {"ids": list(session_ids)}).fetchone()
        return None if found is None else str(found[0])


def _begun(connection: "psycopg.Connection[Any]") -> str:
    cursor = connection.execute(TOGETHER)
    while cursor.nextset():
        pass
    return str(cursor.fetchone()[0])  # type: ignore[index]


def _incarnation(connection: Connection) -> str | None:
    driver: WatchedConnection | Any = connection.connection.dbapi_connection
    known: str | None = driver.incarnation
    return known


def _fate(connection: Connection, number: Mapping[str, str]) -> str | None:
    """Return what the server says of the number of a transaction; None when it has forgotten it."""
    try:
        fate: str | None = connection.scalar(FATE, number)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != UNBORN:
            raise
        return "aborted"
    return fate


@cache
def _insert(table: Table) -> bytes:
    return str(postgresql.insert(table).on_conflict_do_nothing().compile(dialect=DIALECT)).encode()


@cache
def _compiled(statement: Any) -> bytes:
    return str(statement.compile(dialect=DIALECT)).encode()
