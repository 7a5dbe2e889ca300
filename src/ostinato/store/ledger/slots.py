"""The reconciler's hold on the slots: each call is one transaction, on the disk when it returns."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, select

from ostinato.store.ledger import leases, slot_rows
from ostinato.store.ledger.phases import LedgerError, Phase, Stage
from ostinato.store.ledger.slot_rows import Slot, SlotState
from ostinato.store.sql import schema
from ostinato.store.sql.errors import patient
from ostinato.store.store import Store

NEXT: dict[SlotState, frozenset[SlotState]] = {
    SlotState.PLANNED: frozenset({SlotState.RUNNING, SlotState.DROPPED}),
    SlotState.RUNNING: frozenset({SlotState.FINISHED, SlotState.PLANNED, SlotState.DROPPED}),
    SlotState.FINISHED: frozenset({SlotState.SCORED, SlotState.PLANNED, SlotState.DROPPED}),
}
"""The states that the reconciler may move a slot to from each; the others follow the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindEffort:
    """The mean effort of the sessions of one kind of task.

    >>> KindEffort(sessions=8, turns=4.5, thinking=120.0).turns
    4.5
    """

    sessions: int
    turns: float
    thinking: float


@patient
class Slots:
    """The slots of all practice prompts of a Store. `owner` is the sampler that plans and moves slots here,
    empty for one that works alone (`leases.py`).
    """

    def __init__(self, store: Store, owner: str = "") -> None:
        self._database = store.database
        self._owner = owner

    def plan(self, prompt: str, session_ids: Sequence[str]) -> list[Slot]:
        """Reserve a prompt for practice, hold it and plan its slots, one for each session.

        Return none, and change nothing, when any stage has reserved the prompt before.
        """
        planned = [Slot(prompt=prompt, number=i, session_id=id) for i, id in enumerate(session_ids)]
        row = {"stage": Stage.PRACTICE.value, "phase": Phase.RESERVED.value, "reason": None}
        with self._database.write() as connection:
            insert = self._database.insert_new(schema.prompts)
            if connection.execute(insert, {"prompt": prompt, **row}).rowcount != 1:
                return []
            leases.hold(connection, [prompt], self._owner)
            slot_rows.append(connection, planned)
        return planned

    def move(self, slots: Iterable[Slot], changes: Sequence[Slot]) -> list[Slot]:
        """Write the transitions from `slots` to `changes` and return the latter.

        Raises LeaseLostError for a prompt that another sampler holds, and LedgerError for a transition that
        there is not, and when a row says that a slot is not as `slots` have it.
        """
        before = list(slots)
        with self._database.write() as connection:
            leases.check(connection, sorted({slot.prompt for slot in before}), self._owner)
            current = slot_rows.current(connection, sorted({slot.prompt for slot in before}))
            for was, will in zip(before, changes, strict=True):
                _check(*current[was.prompt, was.number], was, will)
            _verified(connection, [slot for slot in changes if slot.state is SlotState.SCORED])
            slot_rows.append(connection, changes)
        return list(changes)

    def open(self) -> dict[str, list[Slot]]:
        """Return the slots of every practice prompt that is reserved and became no group yet, by prompt.

        The prompts are in the order in which they were planned.
        """
        prompt, slot = schema.prompts.c, schema.slots.c
        reserved = (prompt.stage == Stage.PRACTICE.value, prompt.phase == Phase.RESERVED.value)
        query = select(slot.prompt, func.min(slot.order)).select_from(schema.slots.join(schema.prompts))
        query = query.where(*reserved).group_by(slot.prompt).order_by(func.min(slot.order))
        with self._database.read() as connection:
            names = [row[0] for row in connection.execute(query)]
            found = slot_rows.read(connection, names)
        return {name: found[name] for name in names}

    def planned(self) -> list[str]:
        """Return every prompt that was ever planned."""
        with self._database.read() as connection:
            return list(connection.scalars(select(schema.slots.c.prompt).distinct()))

    def phases(self) -> dict[Phase, int]:
        """Return the number of practice prompts in each phase; every phase is there."""
        prompt = schema.prompts.c
        query = select(prompt.phase, func.count()).where(prompt.stage == Stage.PRACTICE.value)
        with self._database.read() as connection:
            rows = connection.execute(query.group_by(prompt.phase)).all()
        counted: dict[str, int] = {row[0]: row[1] for row in rows}
        return {phase: counted.get(phase.value, 0) for phase in Phase}

    def newest_version(self) -> int:
        """Return the newest committed version; -1 before there is one."""
        with self._database.read() as connection:
            newest = connection.scalar(select(func.max(schema.versions.c.version)))
        return -1 if newest is None else newest

    def entered(self) -> dict[SlotState, int]:
        """Return how often each state was entered, over all attempts."""
        with self._database.read() as connection:
            return slot_rows.counts(connection)

    def tried_again(self) -> int:
        """Return the number of attempts that came to nothing and were followed by another."""
        slot = schema.slots.c
        query = select(func.count()).where(slot.state == SlotState.PLANNED.value, slot.attempt > 0)
        with self._database.read() as connection:
            return connection.scalar(query) or 0

    def reasons(self) -> dict[str, int]:
        """Return how often a slot was planned again or dropped for each reason."""
        slot = schema.slots.c
        states = (SlotState.PLANNED.value, SlotState.DROPPED.value)
        query = select(slot.reason, func.count()).where(slot.state.in_(states), slot.reason.is_not(None))
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query.group_by(slot.reason))}

    def efforts(self) -> dict[str, KindEffort]:
        """Return the mean turns and thinking tokens of trained sessions, by the kind of their task.

        Trained ones alone, so that which sessions happened to end first says nothing.
        """
        slot, group, prompt = schema.slots.c, schema.groups.c, schema.prompts.c
        joined = schema.slots.join(schema.groups, group.prompt == slot.prompt).join(
            schema.prompts, prompt.prompt == slot.prompt
        )
        query = select(group.kind, func.count(), func.sum(slot.turns), func.sum(slot.thinking))
        query = query.select_from(joined).where(
            slot.state == SlotState.SCORED.value, prompt.phase == Phase.TRAINED.value
        )
        sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
        with self._database.read() as connection:
            for kind, count, turns, thinking in connection.execute(query.group_by(group.kind)):
                sums[kind] = (count, turns or 0, thinking or 0)
        return {
            kind: KindEffort(sessions=count, turns=turns / count, thinking=thinking / count)
            for kind, (count, turns, thinking) in sums.items()
        }


def again(slot: Slot, session_id: str, reason: str) -> Slot:
    """Return the slot planned for its next attempt; a reason other than INTERRUPTED counts as a failure."""
    failed = reason != slot_rows.INTERRUPTED
    return replace(
        slot,
        attempt=slot.attempt + 1,
        session_id=session_id,
        state=SlotState.PLANNED,
        reason=reason,
        failures=slot.failures + failed,
        kept=None,
    )


def _check(state: str, attempt: int, was: Slot, will: Slot) -> None:
    if (state, attempt) != (was.state, was.attempt):
        raise LedgerError(
            f"slot {was.number} of prompt {was.prompt!r} is {state} in attempt {attempt}, "
            f"not {was.state} in attempt {was.attempt}: read its rows in the table `slots`"
        )
    if will.state not in NEXT.get(was.state, frozenset()):
        raise LedgerError(
            f"slot {was.number} of prompt {was.prompt!r} cannot go from {was.state} to {will.state}"
        )


def _verified(connection: Connection, scored: Sequence[Slot]) -> None:
    """Remove what was kept for the verification of these slots."""
    slot_rows.forget_kept(connection, [slot.session_id for slot in scored])
