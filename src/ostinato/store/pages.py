"""The sessions of a long record, a page at a time, so that nobody has to hold all of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Select, select, tuple_

from ostinato.store.sql import schema
from ostinato.store.sql.row_conversion import session_of
from ostinato.store.store import Store
from ostinato.types import Session, Source

COLUMNS = schema.sessions.c


def ended_sessions(
    store: Store, arms: Sequence[str], size: int, *, since: float = 0.0
) -> Iterator[list[Session]]:
    """Yield the ended live sessions of some arms that began at `since` or later, in seconds since the epoch.

    They come by id, without purged ones, at most `size` at a time. What is recorded meanwhile is in a later
    page or in none. Raises StoreError.
    """
    return _pages(store, _ended(arms).where(COLUMNS.started_at >= since), ("id",), size)


def latest_sessions(store: Store, size: int) -> Iterator[list[Session]]:
    """Yield the ended live sessions of all arms, newest first, as `ended_sessions` does."""
    return _pages(store, _ended(), ("started_at", "id"), size, newest_first=True)


def newest_sessions(store: Store, arm: str, most: int, *, before: float) -> list[Session]:
    """Return the newest ended live sessions of an arm that began `before`, in seconds since the epoch, oldest
    first and without purged ones. Raises StoreError.
    """
    newest_first = COLUMNS.started_at.desc(), COLUMNS.id.desc()
    query = _unpurged(_ended([arm]).where(COLUMNS.started_at < before))
    return _read(store, query.order_by(*newest_first).limit(most))[::-1]


def chosen_sessions(
    store: Store,
    size: int,
    *,
    source: Source | None = None,
    arm: str | None = None,
    user: str | None = None,
    since: float = 0.0,
) -> Iterator[list[Session]]:
    """Yield the sessions that began at `since` or later, oldest first, as `ended_sessions` does."""
    query = select(schema.sessions).where(COLUMNS.started_at >= since)
    for column, value in ((COLUMNS.source, source), (COLUMNS.arm, arm), (COLUMNS.user, user)):
        if value is not None:
            query = query.where(column == str(value))
    return _pages(store, query, ("started_at", "id"), size)


def _ended(arms: Sequence[str] | None = None) -> Select[Any]:
    query = select(schema.sessions).where(COLUMNS.source == Source.LIVE.value, COLUMNS.ending.is_not(None))
    return query if arms is None else query.where(COLUMNS.arm.in_(arms))


def _unpurged(query: Select[Any]) -> Select[Any]:
    return query.where(COLUMNS.id.not_in(select(schema.purges.c.session_id)))


def _pages(
    store: Store, query: Select[Any], by: Sequence[str], size: int, *, newest_first: bool = False
) -> Iterator[list[Session]]:
    """Yield the sessions of a query, each page in a transaction of its own, in the order of columns that
    tell all sessions apart."""
    order = [COLUMNS[name] for name in by]
    ordered = [column.desc() for column in order] if newest_first else order
    query = _unpurged(query).order_by(*ordered).limit(size)
    following = query
    while page := _read(store, following):
        yield page
        key, last = tuple_(*order), tuple_(*(getattr(page[-1], name) for name in by))
        following = query.where(key < last if newest_first else key > last)


def _read(store: Store, query: Select[Any]) -> list[Session]:
    with store.database.read() as connection:
        return [session_of(row) for row in connection.execute(query).mappings()]
