"""The contents of the record, and what of it may go: the tokens that the ledger keeps of groups that ended.

The samples of a group hold their tokens a second time, ready for a trainer. Once the prompt of the group has
ended, nothing claims it again: its tokens may go, while the turns keep theirs, and all rows, masks and
advantages stay, from which the accounts and the pages are read. Turns are only ever emptied by a purge,
or for their age (`retention.py`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from ostinato.store.ledger.phases import ENDS
from ostinato.store.sql.chunks import chunks
from ostinato.store.sql.schema import METADATA, SCHEMA, groups, prompts, samples, sessions, turns
from ostinato.store.store import Store

DAY_S = 86_400.0
AGES_D = (1, 7, 30, 90)
"""The ages, in days, at which the turns of the record are counted apart."""
NO_TOKENS: dict[str, Any] = {
    **dict.fromkeys(("ids", "logprobs", "versions", "temperatures"), b""),
    "routes": None,
}
"""The columns of a sample that only a trainer reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The contents of a record.

    >>> Contents(layout=14, rows={"turns": 2}, bytes={}, ages=(Age(days=1, turns=2, bytes=90),)).rows
    {'turns': 2}
    """

    layout: int
    rows: Mapping[str, int]
    """Rows of each table."""
    bytes: Mapping[str, int]
    """Bytes of each table with its indexes; empty where the database does not say."""
    ages: Sequence["Age"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The turns of sessions that began less than `days` ago, and longer ago than the age before.

    >>> Age(days=None, turns=1, bytes=20).turns
    1
    """

    days: int | None
    """None for all that are older."""
    turns: int
    bytes: int
    """Bytes of their tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """Samples whose tokens may go, or went.

    >>> Spare(groups=1, samples=4, bytes=1_000).samples
    4
    """

    groups: int
    samples: int
    bytes: int


def contents(store: Store, now: float | None = None) -> Contents:
    """Return what the record consists of; ages count back from `now`, seconds since the epoch."""
    moment = time.time() if now is None else now
    with store.database.read() as connection:
        rows = {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in METADATA.sorted_tables
        }
        bounds = (None, *(moment - days * DAY_S for days in AGES_D), None)
        ages = [
            Age(days=days, **_turns(connection, bounds[i + 1], bounds[i]))
            for i, days in enumerate((*AGES_D, None))
        ]
    return Contents(layout=SCHEMA, rows=rows, bytes=store.database.sizes(), ages=tuple(ages))


def _turns(connection: Connection, since: float | None, until: float | None) -> dict[str, int]:
    column, began = turns.c, sessions.c.started_at
    query = select(func.count(), func.sum(length_of(column.prompt_ids, column.ids, column.logprobs)))
    query = query.select_from(turns.join(sessions))
    query = query if since is None else query.where(began >= since)
    count, size = connection.execute(query if until is None else query.where(began < until)).one()
    return {"turns": count, "bytes": int(size or 0)}


def spare(store: Store, before: float) -> Spare:
    """Return the samples whose tokens may go: of prompts that ended, and of sessions begun before `before`,
    in seconds since the epoch."""
    with store.database.read() as connection:
        return _sum(_spare(connection, before))


def compact(store: Store, before: float) -> Spare:
    """Remove the tokens of `spare` samples, a few hundred groups a transaction, and vacuum the database.

    A compaction that is killed has removed a part, and the next one removes the rest.
    """
    with store.database.read() as connection:
        found = _spare(connection, before)
    for some in chunks([row[0] for row in found]):
        with store.database.write() as connection:
            change = update(samples).where(samples.c.group_id.in_(some), samples.c.group_id.in_(_ended()))
            connection.execute(change.values(**NO_TOKENS))
    store.database.vacuum()
    return _sum(found)


def _spare(connection: Connection, before: float) -> list[tuple[str, int, int]]:
    """Return the group, the number of its samples and their bytes, for each group that may go."""
    column = samples.c
    size = func.sum(
        length_of(column.ids, column.logprobs, column.versions, column.temperatures, column.routes)
    )
    query = (
        select(column.group_id, func.count(), size)
        .select_from(samples.outerjoin(sessions, sessions.c.id == column.session_id))
        .where(column.group_id.in_(_ended()), column.ids != b"")
        .group_by(column.group_id)
        .having(func.coalesce(func.max(sessions.c.started_at), 0.0) < before)
        .order_by(column.group_id)
    )
    return [(group, count, int(bytes_)) for group, count, bytes_ in connection.execute(query)]


def _ended() -> Any:
    """Return the query for the ids of the groups whose prompt has ended."""
    ends = [phase.value for phase in ENDS]
    return (
        select(groups.c.id)
        .join(prompts, prompts.c.prompt == groups.c.prompt)
        .where(prompts.c.phase.in_(ends))
    )


def _sum(found: Sequence[tuple[str, int, int]]) -> Spare:
    return Spare(groups=len(found), samples=sum(row[1] for row in found), bytes=sum(row[2] for row in found))


def length_of(*columns: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the sum of the lengths in bytes of these columns."""
    first, *others = (func.coalesce(func.length(column), 0) for column in columns)
    total: ColumnElement[Any] = first
    for each in others:
        total = total + each
    return total
