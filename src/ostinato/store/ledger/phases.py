"""The phases of a prompt on its way through training, and the one function that moves it.

::

    reserved ──► offered ──► claimed ──► trained
       │  ▲        │  ▲         │
       │  │ more   │  └─────────┤ released after a crash
       │  │ facts  │            ├──► dropped (with its reason)
       │  └────────┤            └──► withdrawn
       │           ├──► stale
       │           ├──► withheld
       │           └──► withdrawn
       ├──► dropped (with its reason)
       └──► withdrawn

    held-out (from the start: it enters no other phase)

A prompt that weights contain becomes `trained` from any other phase: the weights are the fact and the record
follows. The phases on the right are ends, but for one: what a superseded candidate was trained on, which
nobody met and nothing was learnt on top of, is `reserved` again (`Ledger.give_back`).
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from sqlalchemy import Connection, Executable, select, update

from ostinato.store.ledger.slot_rows import SlotState, follow
from ostinato.store.sql.chunks import chunks, rows_in
from ostinato.store.sql.errors import StoreError
from ostinato.store.sql.schema import prompts


class LedgerError(StoreError):
    """The ledger refused a change that would break its promise."""


class Stage(StrEnum):
    """The part of the loop that shows a prompt to a model."""

    LESSON = "lesson"
    PRACTICE = "practice"
    LIVE = "live"
    BENCH = "bench"
    """The benchmark, which holds its prompts out of training."""


class Phase(StrEnum):
    """A phase of a prompt on its way through training."""

    RESERVED = "reserved"
    """Shown to a model, or about to be. A live session may have a reason to wait longer."""
    OFFERED = "offered"
    CLAIMED = "claimed"
    TRAINED = "trained"
    STALE = "stale"
    WITHHELD = "withheld"
    """The consent was taken back while its group waited."""
    WITHDRAWN = "withdrawn"
    """A session of its group was purged before it was trained on."""
    DROPPED = "dropped"
    """It never became a group, or the trainer could not train on it; the reason says why."""
    HELD_OUT = "held-out"
    """Measured on, and never trained on; no phase follows."""


ENDS = frozenset({Phase.TRAINED, Phase.STALE, Phase.WITHHELD, Phase.WITHDRAWN, Phase.DROPPED, Phase.HELD_OUT})
BEFORE: dict[Phase, frozenset[Phase]] = {
    Phase.RESERVED: frozenset({Phase.OFFERED, Phase.TRAINED}),
    Phase.OFFERED: frozenset({Phase.RESERVED, Phase.CLAIMED}),
    Phase.CLAIMED: frozenset({Phase.OFFERED}),
    Phase.TRAINED: frozenset(Phase) - {Phase.TRAINED, Phase.HELD_OUT},
    Phase.STALE: frozenset({Phase.OFFERED}),
    Phase.WITHHELD: frozenset({Phase.OFFERED}),
    Phase.WITHDRAWN: frozenset({Phase.RESERVED, Phase.OFFERED, Phase.CLAIMED}),
    Phase.DROPPED: frozenset({Phase.RESERVED, Phase.CLAIMED}),
    Phase.HELD_OUT: frozenset(),
}
"""The phases from which each phase may be entered."""
SLOTS_BECOME: dict[Phase, SlotState] = {
    Phase.OFFERED: SlotState.GROUPED,
    Phase.TRAINED: SlotState.TRAINED,
    **dict.fromkeys((Phase.STALE, Phase.WITHHELD, Phase.WITHDRAWN, Phase.DROPPED), SlotState.DROPPED),
}
"""The state that the slots of a practice prompt enter together with it."""


def move(connection: Connection, names: Sequence[str], to: Phase, reason: str | None = None) -> None:
    """Move prompts to another phase inside a transaction, and the slots of practice prompts with them.

    Raises LedgerError when one of them is in a phase from which `to` may not be entered; the transaction must
    then be rolled back.
    """
    allowed = [phase.value for phase in BEFORE[to]]
    for some in chunks(names):
        change = update(prompts).where(prompts.c.prompt.in_(some), prompts.c.phase.in_(allowed))
        moved = connection.execute(change.values(phase=to.value, reason=reason)).rowcount
        if moved != len(some):
            raise LedgerError(_refusal(connection, some, to))
    if to in SLOTS_BECOME:
        follow(connection, names, SLOTS_BECOME[to], reason or to.value)


def hold_out(connection: Connection, insert: Executable, names: Iterable[str]) -> None:
    """Hold prompts out of training inside a transaction; `insert` adds those that are new.

    Raises LedgerError when a stage that learns has shown one of them; the transaction must then be rolled
    back.
    """
    same = {"stage": Stage.BENCH.value, "phase": Phase.HELD_OUT.value, "reason": None}
    if not (rows := [{"prompt": name, **same} for name in dict.fromkeys(names)]):
        return
    connection.execute(insert, rows)
    others = select(prompts.c.prompt, prompts.c.stage).where(prompts.c.stage != Stage.BENCH.value)
    for name, stage in rows_in(connection, others, prompts.c.prompt, [str(row["prompt"]) for row in rows]):
        raise LedgerError(
            f"prompt {name!r} is held out, and the stage {stage} showed it before: take its task out of "
            "the benchmark, or start another store"
        )


def _refusal(connection: Connection, names: Sequence[str], to: Phase) -> str:
    query = select(prompts.c.prompt, prompts.c.phase).where(prompts.c.prompt.in_(names))
    phases: dict[str, str] = {row[0]: row[1] for row in connection.execute(query)}
    # The prompts that were moved are in the phase `to` now, so a wrong one is missing or in another phase.
    wrong = next((name for name in names if phases.get(name) != to.value), names[0])
    return (
        f"prompt {wrong!r} is {phases.get(wrong, 'unknown')}, so it cannot become {to}: "
        f"read `store/ledger/phases.py` for the order"
    )
