"""The table E[r | ask] - E[r | act] of practice's reward, by kind of task.

    python -m benchmarks.clarification [--tasks 30] [--json]

Scripted policies do pebbles in the real harness with the shipped definition. Where the task is ambiguous
(`ambiguous`), one asks and does what it is told, the other guesses the function that is named; elsewhere both
do the right work, and one asks first. A reward that pays for asking would be positive everywhere, one that
fears it negative: a right one changes its sign with the ambiguity. The pairs are of one task each; intervals
are 95 %, bootstrapped over tasks. There is no peer.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.measure import Cpu
from benchmarks.scripted_agent import Desk, Says
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.client import Message
from ostinato.rewards.practice.definition import PRACTICE, PracticeReward
from ostinato.tasks.pebble import PebbleSource, pebble_of
from ostinato.tasks.teaching import habits
from ostinato.tasks.teaching.habits import DONE, Habit, Scene
from ostinato.tasks.teaching.visible_state import visible_state
from ostinato.types import Task

LIMITS = HarnessConfig(max_turns=20, max_tokens=256, max_context=4_000)
SPLIT = "seeds"
RESAMPLES = 2_000


def asking_first(habit: Habit) -> Habit:
    """Return the habit with a question before it."""

    def both(scene: Scene) -> Iterator[str]:
        yield scene.ask("which one?")
        yield from habit(scene)

    return both


ACT: dict[str, Habit] = {
    "ambiguous": habits.guess_target,
    "fix": habits.evidence_first,
    "spread": habits.repair_all,
    "question": habits.look_and_answer,
    "impossible": habits.do_and_report,
}
ASK = {kind: asking_first(habit) for kind, habit in ACT.items()} | {"ambiguous": habits.ask_then_do}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of task: the mean rewards, and their difference with its interval."""

    kind: str
    tasks: int
    ask: float
    act: float
    difference: float
    low: float
    high: float


def playing(habit: Habit, task: Task, seed: int) -> Says:
    pebble = pebble_of(task)
    assert pebble is not None
    scene = Scene(pebble=pebble, rng=Random(seed))
    texts = habit(scene)

    def says(messages: Sequence[Message]) -> str:
        scene.state = visible_state(messages)
        return next(texts, DONE)

    return says


async def row(kind: str, tasks: list[Task]) -> Row:
    desk = Desk(tasks, LIMITS)
    reward = PracticeReward(PRACTICE, desk.renderer)

    async def worth(habit: Habit, task: Task, seed: int) -> float:
        episode, _, turns = await desk.session(task, playing(habit, task, seed), LIMITS)
        return reward.score(episode.session_id, turns, episode.signals()).total

    ask = np.array([await worth(ASK[kind], task, i) for i, task in enumerate(tasks)])
    act = np.array([await worth(ACT[kind], task, i) for i, task in enumerate(tasks)])
    draws = np.random.default_rng(0).choice(ask - act, (RESAMPLES, len(tasks))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return Row(
        kind=kind,
        tasks=len(tasks),
        ask=float(ask.mean()),
        act=float(act.mean()),
        difference=float((ask - act).mean()),
        low=float(low),
        high=float(high),
    )


async def table(tasks: int, seed: int, folder: Path) -> list[Row]:
    rows = []
    for kind in ACT:
        problems = PebbleSource({kind: 1.0}).problems(SPLIT, seed)
        rows.append(await row(kind, [each.provide(folder) for each in islice(problems, tasks)]))
    return rows


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--seed", type=int, default=8_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cpu = Cpu()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(table(options.tasks, options.seed, Path(folder)))
    print(f"{'kind':<11} {'tasks':>5} {'E[r|ask]':>9} {'E[r|act]':>9}  difference")
    for each in rows:
        difference = f"{each.difference:+.3f} [{each.low:+.3f}, {each.high:+.3f}]"
        print(f"{each.kind:<11} {each.tasks:>5} {each.ask:>9.3f} {each.act:>9.3f}  {difference}")
    if options.json:
        print(json.dumps({"rows": [asdict(each) for each in rows], "cpu_s": cpu.seconds()}))


if __name__ == "__main__":
    main()
