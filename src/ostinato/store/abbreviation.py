"""The ids of sessions as people write them: a beginning stands for the whole where no other id begins so."""

from itertools import takewhile

from sqlalchemy import select

from ostinato.store.sql.schema import sessions
from ostinato.store.store import Store
from ostinato.types import completed

FEWEST = 8
"""The characters that an abbreviated id has at least."""
LISTED = 20
"""The ids that are read, at most, to find out what a beginning stands for."""


def session_meant(store: Store, given: str) -> str:
    """Return the id of the recorded session that a person means by an id or its beginning. Raises IdError."""
    column = sessions.c.id
    query = select(column).where(column >= given, column < given + "\U0010ffff").order_by(column)
    with store.database.read() as connection:
        begun = list(connection.scalars(query.limit(LISTED)))  # the whole id, if there is one, comes first
    return completed(given, begun, noun="session", where=store.database.where)


def abbreviated(store: Store, id: str) -> str:
    """Return the shortest beginning of a session's id, of 8 characters or more, that no other session has."""
    column = sessions.c.id
    before = select(column).where(column < id).order_by(column.desc()).limit(1)
    after = select(column).where(column > id).order_by(column).limit(1)
    with store.database.read() as connection:
        near = [connection.scalar(query) or "" for query in (before, after)]
    return id[: max(FEWEST, *(_common(id, other) + 1 for other in near))]


def _common(one: str, other: str) -> int:
    """Return the number of characters with which both begin."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
