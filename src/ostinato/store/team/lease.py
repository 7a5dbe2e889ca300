"""The lease of the one supervisor that sends people to the engines of a record.

A folder has its lock; a database is used from several machines, and two teams on one would take each other's
people away. So whoever serves from it says so there, again and again, until it ends.
"""

import time

from sqlalchemy import delete, select

from ostinato.store.sql.errors import StoreError
from ostinato.store.sql.schema import counters
from ostinato.store.store import Store

PREFIX = "team "


class RecordInUseError(StoreError):
    """Another team serves from the record; the message names it."""


def take_lease(store: Store, owner: str, seconds: float) -> None:
    """Begin or prolong the lease of `owner`, a machine and a folder; with 0 seconds, end it.

    Raises RecordInUseError while somebody else has it. After a kill the same owner has it again at once.
    """
    now, column = time.time(), counters.c
    ours = column.name.startswith(PREFIX)
    with store.database.write() as connection:
        theirs = select(column.name).where(ours, column.name != PREFIX + owner, column.value > now)
        if (other := connection.scalar(theirs)) is not None:
            raise RecordInUseError(
                f"{store.database.where} is the record of the team at {other.removeprefix(PREFIX)}, which is "
                "up: stop that first, or name another database in [store] url"
            )
        connection.execute(delete(counters).where(ours))
        if seconds:
            connection.execute(counters.insert(), {"name": PREFIX + owner, "value": int(now + seconds) + 1})
