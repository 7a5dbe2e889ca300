"""Kills of a simulated week at its durable steps, and what must be as in a week that was not killed.

A durable step is a transaction of the record, an object of the chain of weights, or the result of a stage.
The collection, the trainer, the gate and the release of the week are the shipped ones.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ostinato.demo.week.week import WeekPlan, run_week
from ostinato.loop.run import Run
from ostinato.store import Objects
from ostinato.store.sql.database import Database

SMALL_WEEK = WeekPlan(
    cycles=1,
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
"""A week of one cycle, which comes to a release on the seeds 1 and 2."""
LEDGER = {
    "prompts": "SELECT prompt, stage, phase FROM prompts WHERE stage = 'live' ORDER BY 1",
    "states": "SELECT turn_id, state FROM states WHERE turn_id NOT LIKE 'bench-%' ORDER BY 1",
    "verdicts": "SELECT id, version, decision, reason FROM verdicts ORDER BY id",
    "versions": "SELECT version, parent FROM versions ORDER BY 1",
    "trainings": "SELECT version, prompt FROM trainings ORDER BY 1, 2",
    "releases": "SELECT experiment, stage, step, share FROM releases ORDER BY 1, at",
    "signals": "SELECT id, kind, observed_at FROM signals WHERE id LIKE 'dev-%' ORDER BY 1",
    "rewards": "SELECT DISTINCT session_id, parts FROM rewards ORDER BY 1, 2",
}
STEPS = ((Database, "write"), (Database, "recording"), (Objects, "create"), (Run, "finish"))


class KilledError(BaseException):
    """Stands for the end of the process."""


class Steps:
    """The number of durable steps so far; the one of number `dies_at` does not happen, 0 for none."""

    def __init__(self, dies_at: int = 0) -> None:
        self.count = 0
        self._dies_at = dies_at

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            self.count += 1
            if self.count == self._dies_at:
                raise KilledError
            return real(*args, **more)

        return step


@contextmanager
def counting(dies_at: int = 0) -> Iterator[Steps]:
    """Count the durable steps of the block, which dies (KilledError) before number `dies_at`."""
    steps, real = Steps(dies_at), [getattr(owner, name) for owner, name in STEPS]
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
class Survived:
    """A week that was killed again and again.

    >>> Survived(kills=3, differs=()).differs
    ()
    """

    kills: int
    differs: tuple[str, ...]
    """The tables that are not as in the week that was not killed."""


def survive(directory: Path, plan: WeekPlan, twin: dict[str, list[Any]], seed: int, gap: int) -> Survived:
    """Run a week that dies before a random one of the next `gap` durable steps, until it is over.

    A process needs some steps until it is where the one before was, so `gap` is larger than those. `twin` is
    the ledger of the same week without kills. The folder is removed afterwards.
    """
    chance, kills = Random(seed), 0
    while True:
        try:
            with counting(chance.randint(1, gap)):
                run_week(directory, plan)
            break
        except KilledError:
            kills += 1
    mine = ledger(directory)
    shutil.rmtree(directory)
    return Survived(kills=kills, differs=tuple(name for name in LEDGER if mine[name] != twin[name]))
