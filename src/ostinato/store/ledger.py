"""What became of every turn, and the promise that no prompt is trained twice.

A group goes `ready → claimed → trained`, or `ready → stale`. The trainer claims for the version it is about
to publish, publishes, then commits; after a crash `commit(published)` and `release_after(published)` restore
order.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    update,
)

from ostinato.store import rows, schema
from ostinato.store.accounts import consented
from ostinato.store.database import StoreError
from ostinato.store.record import Store
from ostinato.store.recording import chunks
from ostinato.types import Group, Sample, Source, State

LEAST_ADVANTAGE = 1e-6
"""Below it an advantage is rounding."""


class LedgerError(StoreError):
    """The ledger refused something that would break its promise."""


class Phase(StrEnum):
    """Where a group is on its way through the trainer."""

    READY = "ready"
    CLAIMED = "claimed"
    TRAINED = "trained"
    STALE = "stale"


class Ledger:
    """Single-epoch bookkeeping over a Store; safe for any number of processes."""

    def __init__(self, store: Store) -> None:
        self._database = store.database

    def reserve(self, prompt: str) -> bool:
        """True for the first caller, of all processes and for ever; False afterwards."""
        with self._database.write() as connection:
            insert = self._database.insert_new(schema.prompts)
            return connection.execute(insert, {"prompt": prompt}).rowcount == 1

    def offer(self, group: Group) -> None:
        """Hand a complete group to the trainer; offering the same id again changes nothing.

        Raises LedgerError when another group of the same prompt was offered before.
        """
        with self._database.write() as connection:
            inserted = connection.execute(self._database.insert_new(schema.groups), rows.group_row(group))
            if inserted.rowcount:
                values = [rows.sample_row(group.id, i, sample) for i, sample in enumerate(group.samples)]
                connection.execute(schema.samples.insert(), values)
            else:
                self._refuse_second_group(connection, group)

    def _refuse_second_group(self, connection: Connection, group: Group) -> None:
        known = connection.scalar(select(schema.groups.c.id).where(schema.groups.c.prompt == group.prompt))
        if known != group.id:
            raise LedgerError(
                f"group {group.id!r}: prompt {group.prompt!r} was offered before as {known!r}: "
                f"sample only prompts that reserve() granted"
            )

    def ready(self, oldest_allowed_version: int) -> int:
        """How many groups wait whose tokens are all of `oldest_allowed_version` or newer."""
        fresh = schema.groups.c.oldest_version >= oldest_allowed_version
        with self._database.read() as connection:
            return connection.scalar(_in_phase(Phase.READY, func.count()).where(fresh)) or 0

    def claim(self, target_version: int, count: int, oldest_allowed_version: int) -> list[Group]:
        """Take the `count` oldest ready groups (fewer if there are no more) to train `target_version`.

        Groups with older tokens than allowed are dropped first, and their turns become STALE; those of people
        who took their consent back meanwhile are WITHHELD.
        """
        with self._database.write() as connection:
            self._withhold(connection)
            self._drop(connection, schema.groups.c.oldest_version < oldest_allowed_version)
            query = _in_phase(Phase.READY, schema.groups).order_by(schema.groups.c.order).limit(count)
            found = connection.execute(query.with_for_update(skip_locked=True)).mappings().all()
            ids = [row["id"] for row in found]
            _move(connection, ids, Phase.CLAIMED, target_version)
            samples = _samples_of(connection, ids)
        return [rows.group_of(row, samples[row["id"]]) for row in found]

    def _withhold(self, connection: Connection) -> None:
        session, sample = schema.sessions.c, schema.samples.c
        joined = schema.sessions.join(schema.samples, sample.session_id == session.id).join(schema.groups)
        query = select(session.id, session.organisation, session.user).select_from(joined).distinct()
        waiting = query.where(
            schema.groups.c.phase == Phase.READY.value,
            session.source == Source.LIVE.value,
            session.consent,
        )
        found = connection.execute(waiting).all()
        agreed = {pair: consented(connection, *pair) for pair in {(row[1], row[2]) for row in found}}
        lost = [id for id, *pair in found if not agreed[*pair]]
        if lost:
            self.withdraw(connection, lost, State.WITHHELD)

    def close_out(self) -> int:
        """At the end of training: groups that are still ready are dropped, and their turns become STALE.

        Returns how many. Claims are left alone: commit or release them first.
        """
        with self._database.write() as connection:
            return self._drop(connection, true())

    def _drop(self, connection: Connection, which: ColumnElement[bool]) -> int:
        """Ready groups that satisfy `which` will not be trained."""
        query = _in_phase(Phase.READY, schema.groups.c.id).where(which).with_for_update(skip_locked=True)
        ids = list(connection.scalars(query))
        _move(connection, ids, Phase.STALE, None)
        self._set_states(connection, _turns_of(connection, ids), State.STALE)
        return len(ids)

    def commit(self, target_version: int) -> int:
        """After publishing: the groups claimed for `target_version` are trained.

        Returns how many, 0 when that was done before.
        """
        with self._database.write() as connection:
            query = _in_phase(Phase.CLAIMED, schema.groups).where(
                schema.groups.c.target_version == target_version
            )
            found = (
                connection.execute(query.order_by(schema.groups.c.order).with_for_update()).mappings().all()
            )
            if found:
                self._commit(connection, target_version, found)
            return len(found)

    def _commit(self, connection: Connection, version: int, found: Sequence[RowMapping]) -> None:
        ids = [row["id"] for row in found]
        _move(connection, ids, Phase.TRAINED, version)
        trainings = [{"version": version, "group_id": row["id"], "prompt": row["prompt"]} for row in found]
        connection.execute(schema.trainings.insert(), trainings)
        flat = _without_advantage(connection, ids)
        taught = [id for id in ids if id not in flat]
        self._set_states(connection, _turns_of(connection, taught), State.TRAINED)
        self._set_states(connection, _turns_of(connection, list(flat)), State.NO_ADVANTAGE)

    def release_after(self, version: int) -> int:
        """After a restart: claims for versions newer than the published one are ready again.

        Returns how many. A group that was purged of a session meanwhile is dropped instead.
        """
        column = schema.groups.c
        newer = (column.phase == Phase.CLAIMED.value, column.target_version > version)
        change = update(schema.groups).where(*newer).values(phase=Phase.READY.value, target_version=None)
        with self._database.write() as connection:
            released = connection.execute(change).rowcount
            return released - self._drop(connection, column.withdrawn)

    def account(self, turn_ids: Iterable[str], state: State, reason: str | None = None) -> None:
        """Say what became of these turns, and for what reason. A later state replaces an earlier one, but
        TRAINED stays, and of a purged turn nothing is known but that it was trained on after all.

        Raises LedgerError when a turn was never recorded.
        """
        with self._database.write() as connection:
            self._set_states(connection, list(turn_ids), state, reason)

    def withdraw(self, connection: Connection, session_ids: Sequence[str], state: State) -> None:
        """Inside a transaction: no group with a turn of these sessions is offered any more.

        Their turns become `state`, the other turns of a group that waited become STALE. What the trainer has
        claimed it goes on with, but never claims again.
        """
        column = schema.samples.c
        for ids in chunks(session_ids):
            theirs = select(column.group_id).where(column.session_id.in_(ids))
            connection.execute(
                update(schema.groups).where(schema.groups.c.id.in_(theirs)).values(withdrawn=True)
            )
        self._drop(connection, schema.groups.c.withdrawn)
        for ids in chunks(session_ids):
            query = select(schema.turns.c.id).where(schema.turns.c.session_id.in_(ids))
            self._set_states(connection, list(connection.scalars(query)), state)

    def account_sessions(self, session_ids: Iterable[str], state: State, reason: str | None = None) -> None:
        """Say what became of all turns that these sessions have so far."""
        column = schema.turns.c
        with self._database.write() as connection:
            for ids in chunks(list(session_ids)):
                query = select(column.id).where(column.session_id.in_(ids))
                self._set_states(connection, list(connection.scalars(query)), state, reason)

    def void_interrupted(self) -> int:
        """After a restart of a run: what nobody will go on with becomes VOID. Returns how many turns.

        Kept are turns in groups that wait for the trainer, a teacher's, and ended live sessions, which are
        collected later.
        """
        turn, session = schema.turns.c, schema.sessions.c
        resumable = or_(
            session.source == Source.TEACHER.value,
            and_(session.source == Source.LIVE.value, session.ending.is_not(None)),
        )
        joined = schema.turns.join(schema.sessions).outerjoin(schema.states)
        orphans = select(turn.id).select_from(joined).where(schema.states.c.state.is_(None), not_(resumable))
        waiting = schema.groups.c.phase.in_([Phase.READY.value, Phase.CLAIMED.value])
        with self._database.write() as connection:
            groups = list(connection.scalars(select(schema.groups.c.id).where(waiting)))
            kept = set(_turns_of(connection, groups))
            lost = [id for id in connection.scalars(orphans) if id not in kept]
            self._set_states(connection, lost, State.VOID)
        return len(lost)

    def _set_states(
        self, connection: Connection, turn_ids: Sequence[str], state: State, reason: str | None = None
    ) -> None:
        if not turn_ids:
            return
        _check_recorded(connection, turn_ids)
        final = (
            (State.TRAINED.value,) if state is State.TRAINED else (State.TRAINED.value, State.PURGED.value)
        )
        change = self._database.upsert(
            schema.states, "state", "reason", unless=or_(*(schema.states.c.state == each for each in final))
        )
        connection.execute(
            change, [{"turn_id": id, "state": state.value, "reason": reason} for id in turn_ids]
        )

    def states(self) -> dict[State, int]:
        """How many turns ended in each state; every state is there."""
        column = schema.states.c
        query = select(column.state, func.count()).group_by(column.state)
        with self._database.read() as connection:
            counts = {row[0]: row[1] for row in connection.execute(query)}
        return {state: counts.get(state.value, 0) for state in State}

    def reasons(self, state: State) -> dict[str, int]:
        """How many turns ended in `state` for each reason that was given."""
        column = schema.states.c
        query = select(column.reason, func.count()).where(column.state == state.value)
        given = query.where(column.reason.is_not(None)).group_by(column.reason)
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(given)}

    def unaccounted(self) -> int:
        """How many recorded turns have no state yet."""
        recorded = select(func.count()).select_from(schema.turns).scalar_subquery()
        accounted = select(func.count()).select_from(schema.states).scalar_subquery()
        with self._database.read() as connection:
            return connection.scalar(select(recorded - accounted)) or 0

    def trained_twice(self) -> int:
        """How many prompts were trained more than once, counted from the append-only record of trainings."""
        prompt = schema.trainings.c.prompt
        repeated = select(prompt).group_by(prompt).having(func.count() > 1).subquery()
        with self._database.read() as connection:
            return connection.scalar(select(func.count()).select_from(repeated)) or 0


def _in_phase(phase: Phase, *what: Any) -> Select[Any]:
    return select(*what).select_from(schema.groups).where(schema.groups.c.phase == literal(phase.value))


def _move(connection: Connection, ids: Sequence[str], phase: Phase, target_version: int | None) -> None:
    for some in chunks(ids):
        change = update(schema.groups).where(schema.groups.c.id.in_(some))
        connection.execute(change.values(phase=phase.value, target_version=target_version))


def _samples_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = defaultdict(list)
    for some in chunks(group_ids):
        query = select(schema.samples).where(schema.samples.c.group_id.in_(some))
        for row in connection.execute(query.order_by(schema.samples.c.position)).mappings():
            samples[row["group_id"]].append(rows.sample_of(row))
    return samples


def _without_advantage(connection: Connection, group_ids: Sequence[str]) -> set[str]:
    """The groups in which every sample scored like the others: their gradient is zero."""
    column = schema.samples.c
    found: set[str] = set()
    for some in chunks(group_ids):
        query = select(column.group_id).where(column.group_id.in_(some)).group_by(column.group_id)
        found |= set(connection.scalars(query.having(func.max(func.abs(column.advantage)) < LEAST_ADVANTAGE)))
    return found


def _turns_of(connection: Connection, group_ids: Sequence[str]) -> list[str]:
    """Ids of the turns that the groups consist of, each once."""
    column = schema.samples.c
    found: dict[str, None] = {}
    for some in chunks(group_ids):
        query = select(column.session_id, column.turns).where(column.group_id.in_(some))
        for session_id, turns in connection.execute(query):
            found |= dict.fromkeys(f"{session_id}/{index}" for index in rows.unpack_ints(turns))
    return list(found)


def _check_recorded(connection: Connection, turn_ids: Sequence[str]) -> None:
    column = schema.turns.c.id
    known = {
        id for some in chunks(turn_ids) for id in connection.scalars(select(column).where(column.in_(some)))
    }
    if unknown := [id for id in turn_ids if id not in known]:
        raise LedgerError(f"turn {unknown[0]!r} (of {len(unknown)} such) was never recorded: record it first")
