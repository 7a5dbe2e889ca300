"""The sealed held-out tasks: drawn anew for each claim, opened once for it, and counted in the store.

Whoever chooses a setting by held-out tasks has used them up: they are the run's *development* tasks. What is
claimed at the end is measured on others, which nobody can have looked at: they follow from the run's secret
and the words of the claim. Each opening is a row of the cycle's log, before anything is measured, so that a
claim that was dropped is counted too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from ostinato.deploy.gate import solved_change
from ostinato.deploy.outcomes import Measurement, score
from ostinato.deploy.statistics import Interval, interval
from ostinato.loop.resources import RunResources
from ostinato.loop.results import Claimed
from ostinato.loop.stages.measure import measure
from ostinato.loop.stages.problems import sealed
from ostinato.store import Ledger, Store
from ostinato.store.cycle_log import CycleAction, cycle_log, log_cycle, said_now
from ostinato.types import Task, by_weight

LEVEL = 0.025
"""One side of the intervals of a claim."""
HEADLINE = "pairs"
"""The split whose repairs no training task has: of `seeds` most occur in training under other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One opening of sealed tasks, as the store has it.

    >>> Opening(claim="practice helps", first=0, newest=12, tasks="9f31").newest
    12
    """

    claim: str
    first: int
    newest: int
    """The two versions that are compared."""
    tasks: str
    """A digest over the keys of the tasks."""


def openings(store: Store) -> list[Opening]:
    """Return every opening of sealed tasks on this record, in order."""
    entries = [entry for entry in cycle_log(store) if entry.action is CycleAction.SEALED_OPENED]
    return [Opening(**json.loads(entry.detail)) for entry in entries]


def opened(store: Store, opening: Opening) -> int:
    """Log an opening unless it was before; return the number of its claim, from 1."""
    if opening not in (before := openings(store)):
        detail = json.dumps({name: getattr(opening, name) for name in Opening.__slots__})
        log_cycle(store, said_now("run", CycleAction.SEALED_OPENED, detail=detail))
        before.append(opening)
    return before.index(opening) + 1


def claim_stage(words: str) -> str:
    """Return the name of a claim's stage, so that a run folder has each claim once."""
    return f"claim-{blake2b(words.encode(), digest_size=4).hexdigest()}"


async def claim(resources: RunResources, first: int, newest: int) -> Claimed:
    """Compare two versions on the sealed tasks of the run's claim, and return what came of it."""
    config, words = resources.config, resources.config.bench.claim
    tasks = sealed(config, resources.run, words)
    Ledger(resources.store).hold_out(task.key for task in tasks)
    opening = Opening(claim=words, first=first, newest=newest, tasks=_digest(tasks))
    number = opened(resources.store, opening)
    before, after = [
        (await measure(resources, version, tasks, passes=config.bench.passes)).measurement
        for version in (first, newest)
    ]
    changes = {split: _change(before, after, split) for split in by_weight({task.split for task in tasks})}
    headline = _headline(opening, number, before, after, changes)
    resources.show.say(headline)
    return Claimed(
        claim=words,
        number=number,
        first=first,
        newest=newest,
        tasks=len(tasks),
        changes={split: (each.estimate, each.low, each.high) for split, each in changes.items()},
        headline=headline,
    )


def _digest(tasks: list[Task]) -> str:
    return blake2b("\n".join(task.key for task in tasks).encode(), digest_size=8).hexdigest()


def _change(before: Measurement, after: Measurement, split: str) -> Interval:
    """Return the change of the solve rate on one split, of tasks that both sides have."""
    of_others = {outcome.task for outcome in before.outcomes if outcome.split != split}
    left = {*of_others, *before.left_out, *after.left_out}
    return interval(solved_change(before.without(left), after.without(left)), LEVEL)


def _headline(
    opening: Opening,
    number: int,
    before: Measurement,
    after: Measurement,
    changes: Mapping[str, Interval],
) -> str:
    """Return the claim's result in one line: on the split without overlap first, then on the others."""
    split = HEADLINE if HEADLINE in changes else next(iter(changes))
    rates = [score([o for o in side.outcomes if o.split == split]).solve for side in (before, after)]
    others = ", ".join(f"{name} {each}" for name, each in changes.items() if name != split)
    return (
        f"claim {number} on this record, {opening.claim!r}: sealed {split} {rates[0]:.0%} → {rates[1]:.0%}, "
        f"{changes[split]} (version {opening.first} against {opening.newest})"
        f"{f'; beside it {others}' if others else ''}"
    )
