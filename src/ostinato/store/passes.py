"""The passes of benchmark runs: each is begun, perhaps again after a kill, and finished once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from ostinato.store.sql.database import Database
from ostinato.store.sql.errors import patient
from ostinato.store.sql.schema import passes


@dataclass(frozen=True, slots=True, kw_only=True)
class PassKey:
    """The name of one pass: one side of a comparison over one task of a suite, for the `number`-th time.

    >>> PassKey(suite="mined 1", hash="9f", side="version 3", task="toolz-1", number=0).number
    0
    """

    suite: str
    hash: str
    """The hash over everything that decides in the suite."""
    side: str
    task: str
    number: int


@patient
class Passes:
    """The record of passes, which any number of processes share and which a kill leaves consistent.

    A pass counts when it has a result. Only the session that the row names can write it, and only once, so
    nothing is counted twice, even when two processes run the same pass.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, key: PassKey, session_id: str) -> str | None:
        """Note that `session_id` is a new attempt at the pass.

        Return the session of an attempt that was cut off, None when there was none. A finished pass stays as
        it is.
        """
        with self._database.write() as connection:
            found = connection.execute(select(passes.c.session_id).where(_is(key))).one_or_none()
            if found is None:
                row = {**_columns(key), "session_id": session_id, "attempts": 1, "result": None}
                connection.execute(insert(passes).values(row))
                return None
            again = update(passes).where(_is(key), passes.c.result.is_(None))
            connection.execute(again.values(session_id=session_id, attempts=passes.c.attempts + 1))
            return str(found.session_id)

    def finish(self, key: PassKey, session_id: str, result: Mapping[str, Any]) -> bool:
        """Write the result; return False when another session has the pass, or it is finished already."""
        mine = and_(_is(key), passes.c.session_id == session_id, passes.c.result.is_(None))
        with self._database.write() as connection:
            if connection.execute(select(passes.c.task).where(mine)).one_or_none() is None:
                return False
            connection.execute(update(passes).where(mine).values(result=json.dumps(result)))
            return True

    def results(self, suite: str, hash: str, side: str) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the finished passes of one side: (task, number) -> result."""
        query = select(passes.c.task, passes.c.number, passes.c.result).where(
            passes.c.suite == suite,
            passes.c.hash == hash,
            passes.c.side == side,
            passes.c.result.is_not(None),
        )
        with self._database.read() as connection:
            return {(task, number): json.loads(text) for task, number, text in connection.execute(query)}

    def hashes(self, suite: str) -> dict[str, set[str]]:
        """Return the hashes under which a suite was run, with the sides that were run under each."""
        query = select(passes.c.hash, passes.c.side).where(passes.c.suite == suite).distinct()
        found: dict[str, set[str]] = {}
        with self._database.read() as connection:
            for hash, side in connection.execute(query):
                found.setdefault(hash, set()).add(side)
        return found

    def attempts(self, suite: str, hash: str, side: str) -> int:
        """Return the number of attempts of one side, those among them that were cut off or void."""
        query = select(passes.c.attempts).where(
            passes.c.suite == suite, passes.c.hash == hash, passes.c.side == side
        )
        with self._database.read() as connection:
            return sum(_numbers(connection, query))


def _numbers(connection: Connection, query: Any) -> list[int]:
    return [int(number) for number in connection.scalars(query)]


def _columns(key: PassKey) -> dict[str, Any]:
    names = ("suite", "hash", "side", "task", "number")
    return {name: getattr(key, name) for name in names}


def _is(key: PassKey) -> ColumnElement[bool]:
    return and_(*(passes.c[name] == value for name, value in _columns(key).items()))
