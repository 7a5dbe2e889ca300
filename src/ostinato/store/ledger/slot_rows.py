"""The rows of slots: what became of each place in the group of a practice prompt, one row a transition.

::

    planned ──► running ──► finished ──► scored ──► grouped ──► trained
       ▲           │            │           │          │
       └───────────┴────────────┘           │          │
       the next attempt, with the reason    │          │
       └───────────┴────────────┴───────────┴──────────┴──► dropped (with the reason)

A slot is what the last of its rows says. `planned` to `scored` are written by the reconciler of
`ostinato.rollout`; `grouped` and the two ends follow the phase of the prompt, in the transaction that moves
it. A slot that was dropped after it was grouped becomes trained when weights turn out to contain its prompt.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update

from ostinato.store.sql.chunks import chunks, rows_in
from ostinato.store.sql.schema import slots

INTERRUPTED = "interrupted"
"""The reason of an attempt whose predecessor was in flight when the reconciler ended: nobody's failure."""


class SlotState(StrEnum):
    """What became of a place in the group of a practice prompt."""

    PLANNED = "planned"
    RUNNING = "running"
    FINISHED = "finished"
    """The session ended; its changes are kept and not yet verified."""
    SCORED = "scored"
    GROUPED = "grouped"
    """Its group waits for the trainer."""
    TRAINED = "trained"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place in the group of a prompt, as its rows have it.

    >>> Slot(prompt="9d1c", number=0, session_id="s1").state.value
    'planned'
    """

    prompt: str
    number: int
    """The place in the group, from 0."""
    session_id: str
    """The session of this attempt; its branches, if any, are called after it."""
    attempt: int = 0
    state: SlotState = SlotState.PLANNED
    reason: str | None = None
    failures: int = 0
    """The attempts that a failure of ours spoilt; those that were interrupted do not count."""
    kept: bytes | None = None
    turns: int | None = None
    thinking: int | None = None
    grouped: bool = False
    """True from the moment its group was offered."""

    @property
    def over(self) -> bool:
        """True when nothing more is awaited from it before its group is offered."""
        return self.state not in {SlotState.PLANNED, SlotState.RUNNING, SlotState.FINISHED}


_CURRENT = (
    select(slots.c.prompt, slots.c.number, slots.c.state, slots.c.attempt)
    .where(slots.c.prompt.in_(bindparam("prompts", expanding=True)))
    .order_by(slots.c.order)
)
"""Made once: to make a statement anew for each of thousands of transitions takes longer than reading."""


def append(connection: Connection, changed: Iterable[Slot]) -> None:
    """Write one transition for each of these slots, as they are after it."""
    at = time.time()
    rows: list[dict[str, Any]] = [
        {
            "prompt": slot.prompt,
            "number": slot.number,
            "attempt": slot.attempt,
            "state": slot.state.value,
            "session_id": slot.session_id,
            "reason": slot.reason,
            "at": at,
            "kept": slot.kept,
            "turns": slot.turns,
            "thinking": slot.thinking,
        }
        for slot in changed
    ]
    if rows:
        connection.execute(slots.insert(), rows)


def current(connection: Connection, prompts: Sequence[str]) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the state and the attempt of each slot of these prompts, by prompt and number."""
    found = {}
    for some in chunks(prompts):
        for prompt, number, state, attempt in connection.execute(_CURRENT, {"prompts": some}):
            found[prompt, number] = state, attempt
    return found


def read(connection: Connection, prompts: Sequence[str]) -> dict[str, list[Slot]]:
    """Return the slots of each of these prompts that has any, in the order of their numbers."""
    column = slots.c
    query = select(slots).order_by(column.order)
    found: dict[str, dict[int, Slot]] = defaultdict(dict)
    for row in rows_in(connection, query, column.prompt, list(prompts)):
        before = found[row.prompt].get(row.number)
        found[row.prompt][row.number] = _after(before, row._mapping)
    return {prompt: [places[n] for n in sorted(places)] for prompt, places in found.items()}


def _after(before: Slot | None, row: Mapping[str, Any]) -> Slot:
    state = SlotState(row["state"])
    spoilt = before is not None and state is SlotState.PLANNED and row["reason"] != INTERRUPTED
    return Slot(
        prompt=row["prompt"],
        number=row["number"],
        session_id=row["session_id"],
        attempt=row["attempt"],
        state=state,
        reason=row["reason"],
        failures=(before.failures if before else 0) + spoilt,
        kept=row["kept"],
        turns=row["turns"],
        thinking=row["thinking"],
        grouped=state is SlotState.GROUPED or (before is not None and before.grouped),
    )


def follow(connection: Connection, prompts: Sequence[str], state: SlotState, reason: str) -> None:
    """Let the slots of prompts enter GROUPED, TRAINED or DROPPED, as the prompts' phases say.

    Those without a session in the group keep their own end.
    """
    changed = []
    for places in read(connection, prompts).values():
        for slot in places:
            if _enters(slot, state):
                why = reason if state is SlotState.DROPPED else None
                changed.append(replace(slot, state=state, reason=why, kept=None))
    append(connection, changed)


def _enters(slot: Slot, state: SlotState) -> bool:
    if state is SlotState.GROUPED:
        return slot.state is SlotState.SCORED
    if state is SlotState.TRAINED:
        return slot.grouped and slot.state is not SlotState.TRAINED
    return slot.state not in {SlotState.DROPPED, SlotState.TRAINED}


def forget_kept(connection: Connection, session_ids: Iterable[str]) -> None:
    """Remove what is kept of these sessions, or of those that they are branches of."""
    names = sorted({name for id in session_ids for name in (id, id.partition("-")[0])})
    for some in chunks(names):
        connection.execute(update(slots).where(slots.c.session_id.in_(some)).values(kept=None))


def counts(connection: Connection) -> dict[SlotState, int]:
    """Return how often each state was entered; every state is there."""
    query = select(slots.c.state, func.count()).group_by(slots.c.state)
    entered: dict[str, int] = {row[0]: row[1] for row in connection.execute(query)}
    return {state: entered.get(state.value, 0) for state in SlotState}
