"""Errors of the record: what they say, which of them pass by themselves, and the wait for those that do."""

import logging
import re
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, signature
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

C = TypeVar("C")
T = TypeVar("T")
log = logging.getLogger(__name__)
BUSY_S = 30.0
"""The longest time that a writer waits for the transaction of another process, seconds."""
PATIENCE_S = 30.0
"""The longest time, from its first failure on, that a call tries again for a server that is restarted, full,
read-only or out of reach, seconds."""
PAUSES_S = (0.05, 1.0)
"""The first pause between two attempts, which doubles, and the longest, seconds."""


class StoreError(Exception):
    """The record could not be read or written; the message says what, where and what to do."""


class UnavailableError(StoreError):
    """The server could not do it at that moment; nothing of the transaction was recorded.

    It was restarted, hangs, is full, read-only or out of reach, or ended this transaction for the sake of
    another one.
    """


class OutcomeUnknownError(StoreError):
    """The answer to a commit was lost, and the server did not say in time what became of it.

    The transaction was carried out as a whole, or not at all. This is never tried again by itself.
    """


PASSING = frozenset(
    {
        *("40001", "40P01"),  # serialisation failure, deadlock
        *("57P01", "57P02", "57P03", "57P05"),  # shut down, crashed, starting up, idle for too long
        *("53100", "53200", "53300"),  # no space, no memory, no connection left
        *("25006", "25P03"),  # read-only, a transaction that was idle for too long
        *("08000", "08001", "08003", "08004", "08006"),  # no connection
    }
)
"""The SQLSTATEs of failures that pass: https://www.postgresql.org/docs/15/errcodes-appendix.html."""
FINAL = re.compile(
    "authentication failed|does not exist|no password supplied|no pg_hba.conf entry|not permitted to log in"
    "|invalid connection option|permission denied|server does not support SSL|certificate"
)
"""Refusals of a connection that no wait changes."""
HELD = f"another process held the database for more than {BUSY_S:.0f} s; look for a suspended one"
ADVICE = {
    "unable to open": "check that the folder exists and is writable",
    "is locked": HELD,
    "lock timeout": HELD,
    "disk is full": "nothing of this transaction was recorded; free space and try again",
    "No space left": "nothing of this transaction was recorded; free space on the server and try again",
    "not a database": "this file was not written by ostinato, choose another path",
    "malformed": "the file is damaged, restore it from a copy",
    "FOREIGN KEY": "a row names a session that was never started; call start_session first or pass sessions=",
    "foreign key": "a row names a session that was never started; call start_session first or pass sessions=",
    "read-only": "give the URL of a server that takes writes, or make this one take them",
    "authentication failed": "check the user in the URL, and the password in PGPASSWORD or in ~/.pgpass",
    "no password supplied": "put the password into PGPASSWORD or into ~/.pgpass",
    "does not exist": "create it with createdb or createuser, or correct the URL",
    "Is the server running": "start the server, or correct the host and the port in the URL",
    "Connection refused": "start the server, or correct the host and the port in the URL",
    "timeout expired": "look whether the server, or the network to it, hangs",
    "timed out": "look whether the server, or the network to it, hangs",
    "statement timeout": "let it take longer: add options=-cstatement_timeout=0 to the URL",
    "too many clients": "raise max_connections of the server, or run fewer processes",
    "connection slots": "raise max_connections of the server, or run fewer processes",
    "permission denied": "grant the user of the URL all rights on this database and its schema",
}


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise a StoreError for an error of the database, or of a value that it cannot hold.

    Raises UnavailableError when the failure passes by itself and nothing was recorded.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, struct.error, OverflowError) as error:
        raise store_error(where, error) from error


def store_error(where: str, error: Exception) -> StoreError:
    """Return what is to be said of an error of the database."""
    original = getattr(error, "orig", None) or error
    cause = " ".join(str(original).split())
    advice = next((f": {advice}" for text, advice in ADVICE.items() if text in cause), "")
    kind = UnavailableError if passes(error) else StoreError
    return kind(f"{where}: {cause}{advice}")


def passes(error: BaseException) -> bool:
    """Return True for a failure of a server that passes by itself."""
    original = getattr(error, "orig", None) or error
    state = getattr(original, "sqlstate", None)
    if state is not None:
        return state in PASSING
    # A connection that takes too long, and a server that hangs, have classes of their own below the driver's.
    names = {kind.__name__ for kind in type(original).__mro__ if kind.__module__.startswith("psycopg")}
    if not names:
        return False
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    unusable = "OperationalError" in names
    return (lost or unusable) and not FINAL.search(str(original))


class _Repeating(threading.local):
    """A flag of each thread: `on` while it is within a call that is repeated."""

    on = False


REPEATING = _Repeating()


def repeated(call: Callable[[], T], *, anew: bool = False) -> T:
    """Call until the server is available; raise the last UnavailableError PATIENCE_S after the first one.

    Within another repeated call this calls once, and the outer one repeats: so there is one patience, and
    nobody waits with a lock in hand. With `anew` this call has a patience of its own.
    """
    if REPEATING.on and not anew:
        return call()
    outer, REPEATING.on = REPEATING.on, True
    try:
        return _repeated(call)
    finally:
        REPEATING.on = outer


def _repeated(call: Callable[[], T]) -> T:
    until, (pause, longest) = 0.0, PAUSES_S
    while True:
        try:
            return call()
        except UnavailableError as error:
            now = time.monotonic()
            until = until or now + PATIENCE_S
            if now + pause > until:
                raise
            log.log(logging.WARNING if pause == PAUSES_S[0] else logging.DEBUG, "%s: trying again", error)
        time.sleep(pause)
        pause = min(2 * pause, longest)


def patient(cls: type[C]) -> type[C]:
    """Let the public methods of a class wait for a server that is unavailable.

    Each of them is one transaction, or changes nothing when it is repeated. Those that take a connection are
    a part of their caller's transaction and are left alone.
    """
    for name, method in list(vars(cls).items()):
        own = isfunction(method) and "connection" not in signature(method).parameters
        if own and not name.startswith("_"):
            setattr(cls, name, _patient(method))
    return cls


def _patient(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        return repeated(lambda: method(*args, **kwargs))

    return waiting
