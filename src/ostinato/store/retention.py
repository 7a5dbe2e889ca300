"""Retention by age: old sessions that nothing needs any more lose their tokens, signals, events and rewards.

A tombstone is left of each, as by a purge: the session's row, its turns without tokens and with their states,
when it went and how much there was. So every figure of integrity stays true, and nothing can be added to it.
Of a session that a version was trained on, the user's name and the rewards stay too: a later purge of the
user then still names those versions, and lineage still has the reward behind each advantage.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select, update

from ostinato.store.ledger.slot_rows import forget_kept
from ostinato.store.ledger.turn_states import set_states, turns_of_sessions
from ostinato.store.purge import AGE, NO_PROMPT, NO_TOKENS
from ostinato.store.settled import staying
from ostinato.store.sql.chunks import rows_in, values_in
from ostinato.store.sql.schema import (
    events,
    groups,
    purges,
    rewards,
    samples,
    sessions,
    signals,
    trainings,
    turns,
)
from ostinato.store.store import Store
from ostinato.store.upkeep import AGES_D, DAY_S, Age, length_of
from ostinato.store.upkeep import NO_TOKENS as NO_SAMPLE
from ostinato.types import Ending, State

AT_ONCE = 200
"""The sessions of one transaction: a kill loses what one of them did, and other writers wait for one."""
EXPIRED = "expired"
"""The user of a session that went for its age, and the reason of its turns that were never collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The contents of sessions that went for their age, or would go.

    >>> Expiry(sessions=0, bytes=0, rows={}, ages=(), stay={}).scrubbed
    True
    """

    sessions: int
    bytes: int
    """Bytes of tokens, in turns and in the samples of the ledger."""
    rows: Mapping[str, int]
    """The turns and samples that lose their tokens, and the rows that are deleted, by table."""
    ages: Sequence[Age]
    """The turns that lose their tokens, by the age of their sessions."""
    stay: Mapping[str, int]
    """The number of old sessions that stay, by the reason."""
    scrubbed: bool = True
    """False when another process still reads the log of the database, as for a purge."""


@dataclass(slots=True, kw_only=True)
class ExpiryTally:
    """The sums over all transactions so far."""

    now: float
    sessions: int = 0
    bytes: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    stay: Counter[str] = field(default_factory=Counter)
    ages: dict[int | None, list[int]] = field(
        default_factory=lambda: {days: [0, 0] for days in (*AGES_D, None)}
    )

    def turn(self, began: float, count: int, size: int) -> None:
        """Add turns of a session that began at that moment."""
        days = next((days for days in AGES_D if began >= self.now - days * DAY_S), None)
        self.ages[days][0] += count
        self.ages[days][1] += size
        self.rows["turns"] += count
        self.bytes += size

    def result(self, *, scrubbed: bool = True) -> Expiry:
        ages = [Age(days=days, turns=turns, bytes=size) for days, (turns, size) in self.ages.items()]
        return Expiry(
            sessions=self.sessions,
            bytes=self.bytes,
            rows=dict(sorted(self.rows.items())),
            ages=tuple(age for age in ages if age.turns),
            stay=dict(sorted(self.stay.items())),
            scrubbed=scrubbed,
        )


def expirable(store: Store, before: float, *, uncollected: bool = False) -> Expiry:
    """Return what `expire` would remove now, and what of the old sessions would stay, with the reasons."""
    tally = ExpiryTally(now=store.now())
    for some in _old(store, before):
        with store.database.read() as connection:
            ids = _over(connection, tally, some, before, uncollected)
            _count(connection, tally, ids, _trained(connection, ids))
    with store.database.read() as connection:
        tally.rows["events"] += (
            connection.scalar(select(func.count()).select_from(events).where(_loose(before))) or 0
        )
    return tally.result()


def expire(store: Store, before: float, *, uncollected: bool = False) -> Expiry:
    """Remove what sessions consist of that are over, and of which nothing was heard since `before`.

    `before` is in seconds since the epoch. `settled.py` says what is over, once more in the transaction that
    removes it. A run that is killed has removed some sessions whole, and the next one removes the others.
    """
    tally = ExpiryTally(now=store.now())
    for some in _old(store, before):
        with store.database.write() as connection:
            ids = _over(connection, tally, some, before, uncollected)
            taught = _trained(connection, ids)
            _count(connection, tally, ids, taught)
            _remove(store, connection, ids, taught, before)
            store.database.must_scrub(connection)
    with store.database.write() as connection:
        tally.rows["events"] += connection.execute(delete(events).where(_loose(before))).rowcount
        store.database.must_scrub(connection)
    scrubbed = store.database.scrub()
    store.database.vacuum()
    return tally.result(scrubbed=scrubbed)


def _old(store: Store, before: float) -> Iterator[Sequence[str]]:
    """Return the sessions that began before that and are no tombstones yet, oldest first, in pieces."""
    query = select(sessions.c.id).where(
        sessions.c.started_at < before, sessions.c.id.not_in(select(purges.c.session_id))
    )
    with store.database.read() as connection:
        ids = list(connection.scalars(query.order_by(sessions.c.started_at, sessions.c.id)))
    return (ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE))


def _over(
    connection: Connection, tally: ExpiryTally, ids: Sequence[str], before: float, uncollected: bool
) -> list[str]:
    """Return those of the sessions that are over; the others, but not those purged meanwhile, are counted."""
    purged = set(values_in(connection, select(purges.c.session_id), purges.c.session_id, ids))
    stay = staying(connection, ids, before, uncollected=uncollected)
    tally.stay.update(reason.value for id, reason in stay.items() if id not in purged)
    return [id for id in ids if id not in stay and id not in purged]


def _loose(before: float) -> ColumnElement[bool]:
    """Return the condition on old events that belong to no session that was ever recorded."""
    known = select(sessions.c.id).where(sessions.c.id == events.c.session_id)
    return and_(events.c.observed_at < before, or_(events.c.session_id.is_(None), ~known.exists()))


def _count(connection: Connection, tally: ExpiryTally, ids: Sequence[str], taught: set[str]) -> None:
    """Add what these sessions consist of to the tally; `taught` ones keep their rewards."""
    tally.sessions += len(ids)
    size = func.sum(length_of(turns.c.prompt_ids, turns.c.ids, turns.c.logprobs))
    joined: Any = sessions.join(turns)
    query: Any = select(sessions.c.started_at, func.count(), size).select_from(joined).group_by(sessions.c.id)
    for began, count, bytes_ in rows_in(connection, query, sessions.c.id, ids):
        tally.turn(began, count, int(bytes_ or 0))
    of = samples.c
    size = func.sum(length_of(of.ids, of.logprobs, of.versions, of.temperatures, of.routes))
    kept: Any = select(func.count(), size).where(of.ids != b"")
    for count, bytes_ in rows_in(connection, kept, of.session_id, ids):
        tally.rows["samples"] += count
        tally.bytes += int(bytes_ or 0)
    for table in (signals, events, rewards):
        mine = [id for id in ids if table is not rewards or id not in taught]
        found = select(func.count()).select_from(table)
        tally.rows[table.name] += sum(values_in(connection, found, table.c.session_id, mine))


def _remove(
    store: Store, connection: Connection, ids: Sequence[str], taught: set[str], before: float
) -> None:
    """Remove the contents of these sessions, at most `AT_ONCE`, and leave their tombstones."""
    if not ids:
        return
    consented = set(
        values_in(connection, select(sessions.c.id).where(sessions.c.consent), sessions.c.id, ids)
    )
    for given in (True, False):
        those = [id for id in ids if (id in consented) is given]
        late = turns_of_sessions(connection, those, without_state=True)
        state = State.STALE if given else State.WITHHELD
        set_states(store.database, connection, late, state, EXPIRED)
    empty = {**NO_TOKENS, **NO_PROMPT}
    connection.execute(update(turns).where(turns.c.session_id.in_(ids)).values(**empty))
    connection.execute(update(samples).where(samples.c.session_id.in_(ids)).values(**NO_SAMPLE))
    forget_kept(connection, ids)
    for table in (signals, events, rewards):
        mine = [id for id in ids if table is not rewards or id not in taught]
        connection.execute(delete(table).where(table.c.session_id.in_(mine)))
    _leave_tombstones(store, connection, ids, taught, before)


def _leave_tombstones(
    store: Store, connection: Connection, ids: Sequence[str], taught: set[str], before: float
) -> None:
    query = select(turns.c.session_id, func.count()).group_by(turns.c.session_id)
    counted = dict(values for values in rows_in(connection, query, turns.c.session_id, ids))
    now = store.now()
    by = f"{AGE}{(now - before) / DAY_S:.0f} days"
    rows = [
        {
            "session_id": id,
            "purged_at": now,
            "purged_by": by,
            "counts": json.dumps({"turns": counted.get(id, 0)}),
        }
        for id in ids
    ]
    connection.execute(purges.insert(), rows)
    ending = func.coalesce(sessions.c.ending, Ending.ABANDONED.value)
    connection.execute(update(sessions).where(sessions.c.id.in_(ids)).values(ending=ending))
    unnamed = [id for id in ids if id not in taught]
    connection.execute(update(sessions).where(sessions.c.id.in_(unnamed)).values(user=EXPIRED))


def _trained(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return the sessions of groups that a version was trained on."""
    joined = samples.join(groups).join(trainings, trainings.c.prompt == groups.c.prompt)  # by its index
    query = select(samples.c.session_id).select_from(joined)
    return set(values_in(connection, query, samples.c.session_id, ids))
