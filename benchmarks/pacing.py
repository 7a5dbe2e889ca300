"""Practice on tasks of which a third take several times as long: which groups come too late to be trained on?

The reconciler, its policies, the slots, the ledger and its pace are the real ones, on a simulated clock. A
session sleeps for a lognormal time whose mean is `--mean` seconds, on hard tasks `--times` as many; the
trainer sleeps for `--step` seconds a version. Two rules meet the same sessions: *paced* asks the ledger
whether a step would make a group in flight too old (`store/ledger/pacing.py`); *earlier* trains on whatever
is whole, as practice did before. Claims take the oldest tokens first under both.

Reported are the hard and the easy groups that ended stale (`hard_at_most` is the upper end of the exact 95 %
interval of the share of hard ones), and by seed versions an hour, the time in which trained sessions were
sampled as a share of all places' time, and the age in versions of what was trained on.

`python -m benchmarks.pacing --json`
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from fuzz.practice import NumberRunner, problem, reconciler
from scipy.stats import beta
from sqlalchemy import select

from benchmarks.asynchrony import Simulated, version_of
from benchmarks.measure import Run, quantile, table
from ostinato.harness.episode import Sampled
from ostinato.rollout import reconciler as reconciler_module
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.store import Ledger, Phase, Store
from ostinato.store.ledger.slots import Slots
from ostinato.store.sql.schema import prompts
from ostinato.types import Task

CONFIG = PracticeConfig(group_size=8, groups_at_once=12, ready_ahead=12, session_s=1e6)
PLACES = CONFIG.group_size * CONFIG.groups_at_once
BATCH, STALENESS = 10, 4
"""The demo's."""
HARD = "question"
"""A third of the problems are of this kind."""
SPREAD = 0.5
POLL_S = 1.0
reconciler_module.POLL_S = POLL_S
ENDS = (Phase.TRAINED, Phase.STALE)


@dataclass(slots=True)
class Lengths:
    """How long sessions sleep, by the kind of their task, and how long each has slept, by session."""

    mean_s: float
    times: float
    slept: dict[str, float] = field(default_factory=dict)

    async def sleep(self, task: Task, id: str, chance: random.Random) -> None:
        scale = self.mean_s * (self.times if task.kind == HARD else 1.0)
        seconds = scale * chance.lognormvariate(-(SPREAD**2) / 2, SPREAD)
        self.slept[id] = self.slept.get(id, 0.0) + seconds
        await asyncio.sleep(seconds)


class LongAndShort(NumberRunner):
    """Sessions whose length depends on their task."""

    lengths: Lengths

    async def grow(self, task: Task, *args: Any, session_id: str, **rest: Any) -> Sampled:
        turn = NumberRunner(
            self._store,
            version=self._version,
            wait=lambda chance: self.lengths.sleep(task, session_id, chance),
        )
        return await turn.grow(task, *args, session_id=session_id, **rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the groups of one run."""

    ended: Counter[tuple[str, Phase]]
    hours: float
    used: float
    age: float
    oldest: int

    def dropped(self, hard: bool) -> tuple[int, int]:
        """Return the groups that ended stale, and all that ended."""
        some = {
            phase: sum(n for (kind, p), n in self.ended.items() if p is phase and (kind == HARD) is hard)
            for phase in ENDS
        }
        return some[Phase.STALE], sum(some.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pacing", description=__doc__)
    parser.add_argument("--versions", type=int, default=24)
    parser.add_argument("--mean", type=float, default=20.0)
    parser.add_argument("--step", type=float, default=15.0)
    parser.add_argument("--times", type=float, nargs="*", default=[4.0, 20.0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {"versions": options.versions, "n": options.seeds}
    with Run("pacing", "sqlalchemy") as run:
        rows = []
        for times in options.times:
            for rule in ("paced", "earlier"):
                found = [_run(rule, times, options, seed) for seed in range(options.seeds)]
                figures[f"{rule}_1_to_{times:g}"] = told = _told(found, options.versions)
                rows.append([f"{rule}, 1 : {times:g}", *(_text(value) for value in told.values())])
        table(["rule", *told], rows)
        run.finish(figures, as_json=options.json)
    return 0


def _told(found: Sequence[Outcome], versions: int) -> dict[str, Any]:
    """Return the figures of the seeds together; intervals are those of the median over seeds."""
    hard, easy = (
        [sum(column) for column in zip(*(one.dropped(it) for one in found), strict=True)]
        for it in (True, False)
    )
    shares = hard[0] / hard[1], easy[0] / easy[1]
    return {
        "hard_dropped": hard,
        "easy_dropped": easy,
        "hard_at_most": float(beta.ppf(0.975, hard[0] + 1, hard[1] - hard[0])),
        "ratio": 1.0 if shares[0] == shares[1] else shares[0] / max(shares[1], 0.5 / easy[1]),
        "hard_in_training": [x / (x + y) for x, y in [_trained(one) for one in found]],
        "versions_an_hour": [versions / one.hours for one in found],
        "places_used": [one.used for one in found],
        "age": [one.age for one in found],
        "oldest": max(one.oldest for one in found),
    }


def _trained(one: Outcome) -> tuple[int, int]:
    hard, easy = one.dropped(True), one.dropped(False)
    return hard[1] - hard[0], easy[1] - easy[0]


def _text(value: Any) -> str:
    if isinstance(value, list) and isinstance(value[0], float):
        return quantile(value).text(2)
    if isinstance(value, list):
        return f"{value[0]} of {value[1]}"
    return f"{value:.3g}"


def _run(rule: str, times: float, options: argparse.Namespace, seed: int) -> Outcome:
    lengths = Lengths(options.mean, times)
    training = Training(batch=BATCH, staleness=STALENESS, until=options.versions)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "record.db")
        runner = LongAndShort(store, version=Slots(store).newest_version)
        runner.lengths = lengths
        one = reconciler(store, runner, Path(folder), CONFIG, training, seed=seed)
        trainer = PacedTrainer(Ledger(store), training, options.step, paced=rule == "paced")
        try:
            with asyncio.Runner(loop_factory=Simulated) as loop:
                seconds = loop.run(_practise(one, trainer, seed))
            ended = _ended(store)
        finally:
            store.close()
    return Outcome(
        ended=ended,
        hours=seconds / 3600,
        used=sum(lengths.slept[id] for id in trainer.used) / (PLACES * seconds),
        age=sum(trainer.ages) / len(trainer.ages),
        oldest=max(trainer.ages),
    )


async def _practise(one: Reconciler, trainer: "PacedTrainer", seed: int) -> float:
    """Sample until training is over; return the seconds that it took."""
    clock = asyncio.get_running_loop().time
    started, training = clock(), asyncio.create_task(trainer.train())
    await one.run((problem(i) for i in range(seed * 10**6, 10**9)), training.done)
    training.result()
    return clock() - started


def _ended(store: Store) -> Counter[tuple[str, Phase]]:
    """Return the number of prompts by their kind and phase."""
    with store.database.read() as connection:
        rows = connection.execute(select(prompts.c.prompt, prompts.c.phase))
        return Counter((problem(int(name.removeprefix("p"))).kind, Phase(phase)) for name, phase in rows)


@dataclass(slots=True)
class PacedTrainer:
    """Claim, sleep for the time of a step, commit: what the learner does, without learning."""

    ledger: Ledger
    training: Training
    step_s: float
    _: KW_ONLY
    paced: bool
    ages: list[int] = field(default_factory=list)
    """How many versions ago the oldest token of each trained group was sampled."""
    used: set[str] = field(default_factory=set)
    """The trained sessions."""

    async def train(self) -> None:
        ledger, training = self.ledger, self.training
        ledger.commit(version_of(0))
        for version in range(1, training.until + 1):
            oldest = version - 1 - training.staleness
            while not self._may_train(version - 1):
                if ledger.ready(0) > ledger.ready(oldest):
                    ledger.claim(version, 0, oldest)  # drops what is too old, so that other groups may start
                await asyncio.sleep(POLL_S)
            groups = ledger.claim(version, training.batch, oldest)
            self.ages += [version - 1 - group.oldest_version for group in groups]
            self.used |= {sample.session_id for group in groups for sample in group.samples}
            await asyncio.sleep(self.step_s)
            ledger.commit(version_of(version, *(group.id for group in groups)))

    def _may_train(self, newest: int) -> bool:
        training = self.training
        if self.paced:
            return self.ledger.may_train(newest, training.staleness, training.batch)
        return self.ledger.ready(newest - training.staleness) >= training.batch


if __name__ == "__main__":
    sys.exit(main())
