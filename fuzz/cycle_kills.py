"""Kills of a simulated week at its durable steps, and what must be as in a week that was not killed.

A durable step is a transaction of the record, an object of the chain of weights, a saved state or a line of
the trainer, or the result of a stage.
The collection, the trainer, the gate and the release of the week are the shipped ones.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from ostinato.loop.run import Run
from ostinato.store import Objects
from ostinato.store.sql.database import Database
from ostinato.train.journal import Journal
from ostinato.train.state import States
from ostinato_lab.week.week import WeekPlan, run_week

SMALL_WEEK = WeekPlan(
    cycles=2,
    developers=40,
    adversaries=0.1,
    tasks=240,
    overrides=(
        "live.sessions=40",
        "live.ab_sessions=80",
        "live.canary_sessions=40",
        "live.learning_rate=0.02",
        "live.gate_margin=0.9",
        "bench.passes=1",
    ),
)
"""A week of two cycles and the trials beside them, which comes to a release on the seeds 1 and 2."""
TINY_WEEK = WeekPlan(
    cycles=3,
    seed=2,
    developers=28,
    adversaries=0.1,
    tasks=120,
    overrides=(
        "live.sessions=16",
        "live.ab_sessions=40",
        "live.canary_sessions=8",
        "live.shadow_requests=6",
        "live.learning_rate=0.02",
        "live.gate_margin=0.95",
        "live.versions=2",
        "bench.passes=1",
        "bench.gate_share=1.0",
        "bench.frozen=0.0",
    ),
)
"""A week for ten thousand kills: three cycles, and the trials of two candidates beside them, in two
seconds."""
SUPERSEDING_WEEK = replace(
    TINY_WEEK, cycles=5, seed=7, overrides=(*TINY_WEEK.overrides, "live.ab_sessions=120")
)
"""A week in which a longer trial goes on beside cycles, and a candidate is superseded by a newer one."""
LEDGER = {
    "prompts": "SELECT prompt, stage, phase FROM prompts WHERE stage = 'live' ORDER BY 1",
    "states": "SELECT turn_id, state FROM states WHERE turn_id NOT LIKE 'bench-%' ORDER BY 1",
    "verdicts": "SELECT id, version, decision, reason FROM verdicts ORDER BY id",
    "versions": "SELECT version, parent FROM versions ORDER BY 1",
    "trainings": "SELECT version, prompt FROM trainings ORDER BY 1, 2",
    "releases": "SELECT experiment, stage, step, share FROM releases ORDER BY 1, at",
    "log": "SELECT action, cycle, detail FROM cycle_log WHERE action LIKE '%_done' OR action IN "
    "('trial_opened', 'trial_closed', 'superseded', 'put_back') ORDER BY 1, 2, 3",
    "signals": "SELECT id, kind, observed_at FROM signals WHERE id LIKE 'dev-%' ORDER BY 1",
    "rewards": "SELECT DISTINCT session_id, parts FROM rewards ORDER BY 1, 2",
}
STEPS = (
    (Database, "write"),
    (Database, "recording"),
    (Objects, "create"),
    (Run, "finish"),
    (States, "save"),
    (Journal, "add"),
)

KEEP = Run.finish
SOON, FAR = 60, 240
"""The durable steps among which a process dies, and those for the gate, whose stage alone takes 131.

A process needs some until it is where the last one was.
"""


class KilledError(BaseException):
    """Stands for the end of the process."""


class Steps:
    """The number of durable steps so far. Number `dies_at` is the last one, 0 for none.

    The process dies before it, or after it with `late`. Nothing that is dead does anything durable: what the
    process would still do on its way out does not happen.
    """

    def __init__(self, dies_at: int = 0, *, late: bool = False) -> None:
        self.count = 0
        self.stages: dict[str, int] = {}
        """The step that kept the result of each stage."""
        self._dies_at = dies_at
        self._late = late

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return the step as one that counts; a step that is a transaction is over at its commit."""

        def step(*args: Any, **more: Any) -> Any:
            self._begin()
            if real is KEEP:
                self.stages[args[1]] = self.count
            done = real(*args, **more)
            if not isinstance(done, AbstractContextManager):
                self._end()
                return done
            return self._transaction(done)

        return step

    @contextmanager
    def _transaction(self, real: AbstractContextManager[Any]) -> Iterator[Any]:
        with real as connection:
            yield connection
        self._end()

    def _begin(self) -> None:
        self.count += 1
        if self._dies_at and self.count >= self._dies_at + self._late:
            raise KilledError

    def _end(self) -> None:
        if self._late and self.count >= self._dies_at > 0:
            raise KilledError


@contextmanager
def counting(dies_at: int = 0, *, late: bool = False) -> Iterator[Steps]:
    """Count the durable steps of the block, which dies (KilledError) at number `dies_at`."""
    steps, real = Steps(dies_at, late=late), [getattr(owner, name) for owner, name in STEPS]
    try:
        for (owner, name), work in zip(STEPS, real, strict=True):
            setattr(owner, name, steps.counted(work))
        yield steps
    finally:
        for (owner, name), work in zip(STEPS, real, strict=True):
            setattr(owner, name, work)


def ledger(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return everything that was decided and accounted, without the names that are drawn anew."""
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        return {name: connection.execute(query).fetchall() for name, query in LEDGER.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A week that was not killed: its ledger, and a copy of its folder from before its first cycle.

    >>> Twin(plan=TINY_WEEK, start=Path("start"), ledger={}).ledger
    {}
    """

    plan: WeekPlan
    start: Path
    ledger: dict[str, list[tuple[Any, ...]]]


def twin_of(folder: Path, plan: WeekPlan) -> Twin:
    """Run the week without a kill; the copy is kept below `folder`, which must be new or empty."""
    whole, start = folder / "whole", folder / "start"
    with counting() as steps:
        run_week(whole, plan)
    with counting(steps.stages["after"], late=True), suppress(KilledError):
        run_week(start, plan)
    twin = Twin(plan=plan, start=start, ledger=ledger(whole))
    shutil.rmtree(whole)
    return twin


@dataclass(frozen=True, slots=True, kw_only=True)
class Survived:
    """A week that was killed again and again.

    >>> Survived(kills=3, differs=(), died_in={"collect": 3}).differs
    ()
    """

    kills: int
    differs: tuple[str, ...]
    """The tables that are not as in the week that was not killed."""
    died_in: Mapping[str, int]
    """The number of kills in each stage."""


def survive(directory: Path, twin: Twin, seed: int) -> Survived:
    """Take a copy of a week from before its first cycle to its end, through kill after kill.

    Each process dies at a random one of its first durable steps, before or after it. The folder is removed
    afterwards.
    """
    chance, kills, died_in = Random(seed), 0, Counter[str]()
    shutil.copytree(twin.start, directory)
    while True:
        try:
            gap = FAR if stage_under_way(directory) == "gate" else SOON
            with counting(chance.randint(1, gap), late=chance.random() < 0.5):
                run_week(directory, twin.plan)
            break
        except KilledError:
            kills += 1
            died_in[stage_under_way(directory)] += 1
    mine = ledger(directory)
    shutil.rmtree(directory)
    differs = tuple(name for name in LEDGER if mine[name] != twin.ledger[name])
    return Survived(kills=kills, differs=differs, died_in=died_in)


def stage_under_way(directory: Path) -> str:
    """Return the stage that a killed cycle has begun and not ended, empty between two stages."""
    begun = "SELECT action, detail FROM cycle_log WHERE action IN ('stage_began', 'stage_done')"
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        rows = connection.execute(f'{begun} ORDER BY "order"').fetchall()
    return rows[-1][1] if rows and rows[-1][0] == "stage_began" else ""
