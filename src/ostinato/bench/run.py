"""Held-out tasks × one version ─► Report: a proportion with its interval for every split.

A void episode (something of ours failed) is run again, at most `RETRIES` times; it is never scored as a
failure.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ostinato.deploy.statistics import wilson
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.store import Store
from ostinato.store.ledger import Ledger
from ostinato.types import Report, Score, Source, State, Task

RETRIES = 2


class BenchError(RuntimeError):
    """An episode stayed void: the benchmark has no figure to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A Report and, in the order of the tasks, whether each was solved (for paired comparison)."""

    report: Report
    solved: tuple[bool, ...]


class Bench:
    """Runs the benchmark with a fixed number of sessions at once.

    To compare two versions task by task, give both the same tasks in the same order.
    """

    def __init__(self, runner: EpisodeRunner, store: Store, slots: int = 48) -> None:
        self._runner = runner
        self._store = store
        self._slots = asyncio.Semaphore(slots)

    async def measure(
        self, version: int, tasks: Sequence[Task], on_done: Callable[[Episode], None] = lambda _: None
    ) -> Measured:
        episodes = await asyncio.gather(*(self._episode(task, on_done) for task in tasks))
        self._account(episodes)
        report = Report(
            version=version, scores=scores(episodes), rates=rates(episodes), harness=self._runner.harness
        )
        self._store.add_report(report)
        return Measured(report=report, solved=tuple(episode.solved for episode in episodes))

    async def _episode(self, task: Task, on_done: Callable[[Episode], None]) -> Episode:
        async with self._slots:
            for _ in range(1 + RETRIES):
                episode = await self._runner.run(task, CardUser(task), source=Source.BENCH)
                if episode.void is None:
                    on_done(episode)
                    return episode
                Ledger(self._store).account_sessions([episode.session_id], State.VOID)
        raise BenchError(f"task {task.id} stayed void after {RETRIES} retries: {episode.void}")

    def _account(self, episodes: Sequence[Episode]) -> None:
        self._store.record((), [signal for episode in episodes for signal in episode.signals()])
        Ledger(self._store).account_sessions([episode.session_id for episode in episodes], State.MEASURED)


def scores(episodes: Sequence[Episode]) -> dict[str, Score]:
    """Solve rate of every split."""
    tried = Counter(episode.task.split for episode in episodes)
    solved = Counter(episode.task.split for episode in episodes if episode.solved)
    return {split: wilson(solved[split], n) for split, n in sorted(tried.items())}


def rates(episodes: Sequence[Episode]) -> Mapping[str, float]:
    """Behaviour beside the score, over all splits."""
    n = len(episodes)
    outcomes = [episode.outcome for episode in episodes]
    return {
        "turns": sum(outcome.turns for outcome in outcomes) / n,
        "tampered": sum(episode.tampered for episode in episodes) / n,
        "asked": sum("ask_user" in outcome.calls for outcome in outcomes) / n,
        "ran_tests": sum("bash" in outcome.calls for outcome in outcomes) / n,
        "broken": sum(outcome.broken > 0 for outcome in outcomes) / n,
    }
