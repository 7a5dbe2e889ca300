"""Practice while tools take time: the asynchronous reconciler beside the synchronous one, and the bound.

The reconciler, slots and ledger are the real ones; a session is a chain of calls that really sleep, for a
lognormal time whose median is `--median` seconds, and the trainer sleeps for `--step` seconds a version. Both
modes run the same sessions: the sleeps follow from the seed of a place in a group. No engine and no tool
computes, so what is measured is who waits for whom.

The bound is what no order of the same work can beat: the larger of the sampling time of all sessions divided
by the places they can be in, all steps of the trainer one after another, and the longest session.

With `--simulated` the sleeps pass on a simulated clock: the event loop jumps to the next timer, so that
nothing but the order of the work is measured, whatever else the machine does. CPU time then takes no time.

`python -m benchmarks.asynchrony --json`
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzz.practice import NumberRunner, problem, reconciler

from benchmarks.measure import Run, quantile, table
from ostinato.rollout.config import SYNCHRONOUS, PracticeConfig
from ostinato.rollout.reconciler import Training
from ostinato.store import Ledger, Phase, Store
from ostinato.store.ledger.slot_rows import SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.types import Checkpoint

SIGMA = 1.0
"""The spread of the logarithm: a call in forty takes more than seven medians."""
CALLS = (2, 6)
GROUP, GROUPS_AT_ONCE, BATCH, STALENESS = 4, 6, 4, 4
POLL_S = 0.2


@dataclass(slots=True)
class Chains:
    """The time that each session slept."""

    median_s: float
    seconds: list[float] = field(default_factory=list)

    async def sleep(self, chance: random.Random) -> None:
        """Sleep as long as all calls of one turn take."""
        calls = chance.randint(*CALLS)
        total = sum(self.median_s * chance.lognormvariate(0.0, SIGMA) for _ in range(calls))
        self.seconds.append(total)
        await asyncio.sleep(total)


class Simulated(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer in place of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run took, in seconds."""

    wall: float
    bound: float
    sessions: int
    stale: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asynchrony", description=__doc__)
    parser.add_argument("--versions", type=int, default=12)
    parser.add_argument("--median", type=float, default=1.0)
    parser.add_argument("--step", type=float, default=2.0)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pairs = []
    with Run("asynchrony", "sqlalchemy") as run:
        for seed in range(options.pairs):
            pairs.append([_run(mode, options, seed) for mode in ("asynchronous", SYNCHRONOUS)])
        rows = [
            [mode, f"{one.wall:.1f}", f"{one.bound:.1f}", f"{one.wall / one.bound:.2f}", str(one.stale)]
            for pair in pairs
            for mode, one in zip(("asynchronous", "synchronous"), pair, strict=True)
        ]
        table(["mode", "wall s", "bound s", "wall / bound", "stale groups"], rows)
        faster = quantile([there.wall / here.wall for here, there in pairs])
        above = quantile([here.wall / here.bound for here, _ in pairs])
        figures = {
            "versions": options.versions,
            "sessions": [one.sessions for one, _ in pairs],
            "faster": faster.value,
            "faster_interval": [faster.low, faster.high],
            "wall_over_bound": above.value,
            "wall_over_bound_interval": [above.low, above.high],
            "wall_s": {mode: [pair[i].wall for pair in pairs] for i, mode in enumerate(("async", "sync"))},
            "bound_s": [one.bound for one, _ in pairs],
            "simulated": options.simulated,
            "n": len(pairs),
        }
        run.finish(figures, as_json=options.json)
    return 0


def _run(mode: str, options: argparse.Namespace, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "record.db")
        try:
            with asyncio.Runner(loop_factory=Simulated if options.simulated else None) as runner:
                return runner.run(_practise(store, Path(folder), mode, options, seed))
        finally:
            store.close()


async def _practise(store: Store, folder: Path, mode: str, options: argparse.Namespace, seed: int) -> Outcome:
    config = PracticeConfig(group_size=GROUP, groups_at_once=GROUPS_AT_ONCE, ready_ahead=2 * BATCH)
    config = replace(config, mode=mode)
    chains, slots = Chains(options.median), Slots(store)
    runner = NumberRunner(store, version=slots.newest_version, wait=chains.sleep)
    training = Training(batch=BATCH, staleness=STALENESS, until=options.versions)

    async def served() -> int:
        return slots.newest_version()

    one = reconciler(store, runner, folder, config, training, served=served, seed=seed)
    clock = asyncio.get_running_loop().time
    started = clock()
    trainer = asyncio.create_task(_train(Ledger(store), training, options.step))
    await one.run((problem(i) for i in range(10**6)), trainer.done)
    await trainer
    places = GROUP * GROUPS_AT_ONCE
    return Outcome(
        wall=clock() - started,
        bound=max(sum(chains.seconds) / places, options.versions * options.step, *chains.seconds),
        sessions=slots.entered()[SlotState.SCORED],
        stale=slots.phases()[Phase.STALE],
    )


async def _train(ledger: Ledger, training: Training, step_s: float) -> None:
    """Claim, sleep for the time of a step, commit: what the learner does, without learning."""
    ledger.commit(version_of(0))
    for version in range(1, training.until + 1):
        oldest = version - 1 - training.staleness
        while ledger.ready(oldest) < training.batch:
            if ledger.ready(0) > ledger.ready(oldest):
                ledger.claim(version, 0, oldest)  # drops what is too old, so that other groups may start
            await asyncio.sleep(POLL_S)
        batch = [group.id for group in ledger.claim(version, training.batch, oldest)]
        await asyncio.sleep(step_s)
        ledger.commit(version_of(version, *batch))


def version_of(number: int, *batch: str) -> Checkpoint:
    return Checkpoint(
        version=number,
        parent=number - 1 if number else None,
        digest=str(number),
        kind="delta",
        bytes=0,
        created_at=time.time(),
        batch=batch,
    )


if __name__ == "__main__":
    sys.exit(main())
