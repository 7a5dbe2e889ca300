"""The sessions of a long record, a page at a time, so that nobody has to hold all of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Select, select

from ostinato.store.sql import schema
from ostinato.store.sql.row_conversion import session_of
from ostinato.store.store import Store
from ostinato.types import Session, Source


def ended_sessions(
    store: Store, arms: Sequence[str], size: int, *, since: float = 0.0
) -> Iterator[list[Session]]:
    """Yield the ended live sessions of some arms that began at `since` or later, in seconds since the epoch.

    They come by id, without purged ones, at most `size` at a time.

    What is recorded meanwhile is in a later page or in none. Raises StoreError.
    """
    table, last = schema.sessions.c, ""
    query = _ended(arms).where(table.started_at >= since)
    while page := _read(store, query.where(table.id > last).order_by(table.id).limit(size)):
        yield page
        last = page[-1].id


def newest_sessions(store: Store, arm: str, most: int, *, before: float) -> list[Session]:
    """Return the newest ended live sessions of an arm that began `before`, in seconds since the epoch, oldest
    first and without purged ones. Raises StoreError.
    """
    table = schema.sessions.c
    newest_first = table.started_at.desc(), table.id.desc()
    return _read(store, _ended([arm]).where(table.started_at < before).order_by(*newest_first).limit(most))[
        ::-1
    ]


def _ended(arms: Sequence[str]) -> Select[Any]:
    table = schema.sessions.c
    return select(schema.sessions).where(
        table.source == Source.LIVE.value,
        table.arm.in_(arms),
        table.ending.is_not(None),
        table.id.not_in(select(schema.purges.c.session_id)),
    )


def _read(store: Store, query: Select[Any]) -> list[Session]:
    with store.database.read() as connection:
        return [session_of(row) for row in connection.execute(query).mappings()]
