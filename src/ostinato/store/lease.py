"""The lease of the one supervisor that sends people to the engines of a record.

Two teams on one database would take each other's people away. A folder has its lock; a database is used from
several machines, so whoever serves from it says so there, again and again, until it ends.
"""

import time

from sqlalchemy import delete, select

from ostinato.store.sql.errors import StoreError, patient
from ostinato.store.sql.schema import counters
from ostinato.store.store import Store

PREFIX = "team "


class RecordInUseError(StoreError):
    """Another team serves from the record; the message names it."""


@patient
class RecordLease:
    """The lease of `owner`, the name of a machine and a folder, whose successor after a kill has it at once.

    >>> RecordLease(store, "gpu-1:/srv/team", seconds=30.0).take()                     # doctest: +SKIP
    """

    def __init__(self, store: Store, owner: str, *, seconds: float) -> None:
        self._database = store.database
        self._name = PREFIX + owner
        self._seconds = seconds

    def take(self) -> None:
        """Begin the lease, or prolong it. Raises RecordInUseError while somebody else has it."""
        now, column = time.time(), counters.c
        with self._database.write() as connection:
            others = select(column.name).where(
                column.name.startswith(PREFIX), column.name != self._name, column.value > now
            )
            if (other := connection.scalar(others)) is not None:
                raise RecordInUseError(
                    f"{self._database.where} is the record of a team that {other.removeprefix(PREFIX)} serves: "
                    "stop that first, or name another database in [store] url"
                )
            connection.execute(delete(counters).where(column.name.startswith(PREFIX)))
            connection.execute(counters.insert(), {"name": self._name, "value": int(now + self._seconds) + 1})

    def give_up(self) -> None:
        """End the lease."""
        with self._database.write() as connection:
            connection.execute(delete(counters).where(counters.c.name == self._name))
