"""The leases of samplers: which of them holds which practice prompts, and until when it is taken to live.

A sampler enters, renews its lease while it works, and holds the prompts that it planned. Once its lease is
over, another sampler takes over what it held. A sampler that was only suspended finds on waking that it holds
those prompts no more: every transition of a slot checks it, in its own transaction. Times are those of the
database, because the clocks of hosts differ.
"""

import time
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, update

from ostinato.store.ledger.phases import LedgerError, Phase, Stage
from ostinato.store.sql.chunks import chunks
from ostinato.store.sql.errors import patient
from ostinato.store.sql.schema import holds, prompts, samplers, slots
from ostinato.store.store import Store
from ostinato.types import new_id

_HOLDERS = select(holds.c.prompt, holds.c.owner).where(
    holds.c.prompt.in_(bindparam("prompts", expanding=True))
)


class LeaseLostError(LedgerError):
    """Another sampler holds the prompt now."""


@patient
class Leases:
    """The lease of one sampler; `name` is that of its place, which its successor after a restart has too.

    >>> Leases(store, "sampler-0", seconds=60.0).owner.startswith("sampler-0/")        # doctest: +SKIP
    True
    """

    def __init__(self, store: Store, name: str, *, seconds: float) -> None:
        self._database = store.database
        self._name = name
        self._seconds = seconds
        self.owner = f"{name}/{new_id()}"

    def enter(self) -> None:
        """Begin the lease, and end that of a predecessor of the same name."""
        with self._database.write() as connection:
            _end(connection, self._name)
            row = {"owner": self.owner, "until": _now(connection) + self._seconds}
            connection.execute(samplers.insert(), row)

    def renew(self) -> None:
        """Prolong the lease. Raises LeaseLostError when a successor of the same name has entered."""
        with self._database.write() as connection:
            change = update(samplers).where(samplers.c.owner == self.owner)
            until = _now(connection) + self._seconds
            if connection.execute(change.values(until=until)).rowcount != 1:
                raise LeaseLostError(f"the lease of {self.owner} was ended: another {self._name} works")

    def take_over(self) -> list[str]:
        """Hold every planned practice prompt that no living sampler holds, and return them."""
        with self._database.write() as connection:
            living = select(samplers.c.owner).where(samplers.c.until > _now(connection))
            held = select(holds.c.prompt).where(holds.c.owner.in_(living))
            planned = select(slots.c.prompt).where(slots.c.prompt == prompts.c.prompt)
            reserved = (prompts.c.stage == Stage.PRACTICE.value, prompts.c.phase == Phase.RESERVED.value)
            query = select(prompts.c.prompt).where(*reserved, planned.exists(), prompts.c.prompt.not_in(held))
            free = list(connection.scalars(query))
            for some in chunks(free):
                connection.execute(delete(holds).where(holds.c.prompt.in_(some)))
            hold(connection, free, self.owner)
        return free

    def held(self) -> set[str]:
        """Return the prompts that this sampler holds."""
        with self._database.read() as connection:
            return set(connection.scalars(select(holds.c.prompt).where(holds.c.owner == self.owner)))

    def leave(self) -> None:
        """End the lease; others may take over at once what it still holds."""
        with self._database.write() as connection:
            connection.execute(delete(samplers).where(samplers.c.owner == self.owner))


def end_silent(store: Store) -> list[str]:
    """End the leases that are over, and return the names of their samplers, which died or hang."""
    with store.database.read() as connection:
        if not connection.scalar(select(func.count()).where(samplers.c.until <= _now(connection))):
            return []
    with store.database.write() as connection:
        over = samplers.c.until <= _now(connection)
        owners = list(connection.scalars(select(samplers.c.owner).where(over)))
        connection.execute(delete(samplers).where(samplers.c.owner.in_(owners)))
    return sorted(owner.rpartition("/")[0] for owner in owners)


def hold(connection: Connection, names: Sequence[str], owner: str) -> None:
    """Let `owner` hold prompts that nobody holds, inside a transaction."""
    if names:
        connection.execute(holds.insert(), [{"prompt": name, "owner": owner} for name in names])


def check(connection: Connection, names: Sequence[str], owner: str) -> None:
    """Raise LeaseLostError, inside a transaction, unless `owner` holds all of these prompts."""
    rows = (row for some in chunks(names) for row in connection.execute(_HOLDERS, {"prompts": some}))
    holders = {row.prompt: row.owner for row in rows}
    if lost := [name for name in names if holders.get(name) != owner]:
        raise LeaseLostError(f"prompt {lost[0]!r} is held by {holders.get(lost[0], 'nobody')}, not {owner}")


def end_hold(connection: Connection, name: str, owner: str | None) -> None:
    """Let nobody hold a prompt any more that becomes a group or is dropped, inside a transaction.

    Raises LeaseLostError when there is an `owner` and it does not hold the prompt.
    """
    if owner is not None:
        check(connection, [name], owner)
    connection.execute(delete(holds).where(holds.c.prompt == name))


def _end(connection: Connection, name: str) -> None:
    connection.execute(delete(samplers).where(samplers.c.owner.startswith(f"{name}/", autoescape=True)))


def _now(connection: Connection) -> float:
    """Return the time of the database; a local file has that of this machine."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)
