"""The sessions of a long record, a page at a time, so that nobody has to hold all of them."""

from collections.abc import Iterator, Sequence

from sqlalchemy import select

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
    query = select(schema.sessions).where(
        table.source == Source.LIVE.value,
        table.arm.in_(arms),
        table.ending.is_not(None),
        table.started_at >= since,
        table.id.not_in(select(schema.purges.c.session_id)),
    )
    while True:
        with store.database.read() as connection:
            rows = connection.execute(query.where(table.id > last).order_by(table.id).limit(size)).mappings()
            page = [session_of(row) for row in rows]
        if not page:
            return
        yield page
        last = page[-1].id
