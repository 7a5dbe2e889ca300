"""The benchmark: held-out tasks × passes × one version ─► Measurement and Report, with an interval by split.

A void episode (the infrastructure failed) is run again, at most `RETRIES` times; it is never scored as a
failure. A task that stays void is left out and named, and a benchmark that leaves out many has no figure.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ostinato.deploy.outcomes import Measurement, TaskOutcome, score
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger
from ostinato.types import Grade, Report, Score, Source, State, Task

T = TypeVar("T")
RETRIES = 2
MOST_LEFT_OUT = 1 / 20
"""The largest share of the tasks that a benchmark goes on without."""


class BenchError(RuntimeError):
    """Too many episodes stayed void, so the benchmark has no figure."""


class Bench:
    """The benchmark, with a fixed number of sessions at once.

    Versions are compared task by task: measure all on the same tasks in the same order, with as many passes.
    """

    def __init__(self, runner: EpisodeRunner, store: Store, slots: int = 48) -> None:
        self._runner = runner
        self._store = store
        self._slots = asyncio.Semaphore(slots)

    async def measure(
        self,
        version: int,
        tasks: Sequence[Task],
        *,
        passes: int = 1,
        on_done: Callable[[Episode], None] = lambda _: None,
    ) -> Measurement:
        """Run every task `passes` times and store the Report.

        A task of which a pass stays void is left out with all its passes. Raises BenchError when more than
        MOST_LEFT_OUT of the tasks are.
        """
        voids = _Voids(int(len(tasks) * MOST_LEFT_OUT))
        runs = (self._episode(task, voids, on_done) for _ in range(passes) for task in tasks)
        done = await all_of(runs)
        self._account([episode for episode in done if episode is not None])
        of_task = [done[index :: len(tasks)] for index in range(len(tasks))]
        whole = [[each for each in some if each is not None] for some in of_task if None not in some]
        episodes = [each for number in range(passes) for each in (some[number] for some in whole)]
        outcomes = tuple(outcome(some) for some in whole)
        report = Report(
            version=version, scores=scores(outcomes), rates=rates(episodes), harness=self._runner.harness
        )
        self._store.add_report(report)
        return Measurement(
            report=report, outcomes=outcomes, void=voids.attempts, left_out=tuple(sorted(voids.tasks))
        )

    async def _episode(
        self, task: Task, voids: "_Voids", on_done: Callable[[Episode], None]
    ) -> Episode | None:
        """Run one pass; return None for a task that is left out."""
        async with self._slots:
            for _ in range(1 + RETRIES):
                if task.id in voids.tasks:
                    return None
                episode = await self._runner.run(task, CardUser(task), source=Source.BENCH)
                if episode.void is None:
                    on_done(episode)
                    return episode
                voids.attempts += 1
                Ledger(self._store).account_sessions([episode.session_id], State.VOID)
            voids.leave_out(task, str(episode.void))
            return None

    def _account(self, episodes: Sequence[Episode]) -> None:
        self._store.record((), [signal for episode in episodes for signal in episode.signals()])
        Ledger(self._store).account_sessions([episode.session_id for episode in episodes], State.MEASURED)


class _Voids:
    """The attempts of one benchmark that a failure of ours spoilt, and the tasks that it goes on without."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.attempts = 0
        self.tasks = set[str]()

    def leave_out(self, task: Task, reason: str) -> None:
        """Note that a task stayed void. Raises BenchError when there are too many of them."""
        self.tasks.add(task.id)
        if len(self.tasks) > self._most:
            raise BenchError(
                f"{len(self.tasks)} tasks stayed void after {RETRIES} retries, and at most {self._most} may "
                f"be left out. The last, {task.id}: {reason}"
            )


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all; the first error cancels the rest."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def outcome(passes: Sequence[Episode]) -> TaskOutcome:
    """Return the results of all passes over one task."""
    task = passes[0].task
    return TaskOutcome(
        task=task.id,
        split=task.split,
        cluster=task.cluster,
        solved=tuple(episode.solved and episode.grade.at_least(Grade.GUARDED) for episode in passes),
        tampered=tuple(episode.tampered for episode in passes),
        asked=tuple("ask_user" in episode.outcome.calls for episode in passes),
        broken=tuple(episode.outcome.broken > 0 for episode in passes),
        forgeable=tuple(episode.solved and episode.grade is Grade.FORGEABLE for episode in passes),
        untested=tuple("bash" not in episode.outcome.calls for episode in passes),
    )


def scores(outcomes: Sequence[TaskOutcome]) -> dict[str, Score]:
    """Return the solve rate of every split."""
    splits = sorted({each.split for each in outcomes})
    return {split: score([each for each in outcomes if each.split == split]) for split in splits}


def rates(episodes: Sequence[Episode]) -> Mapping[str, float]:
    """Return the behaviour beside the score, over all splits."""
    n = len(episodes)
    outcomes = [episode.outcome for episode in episodes]
    return {
        "turns": sum(outcome.turns for outcome in outcomes) / n,
        "tampered": sum(episode.tampered for episode in episodes) / n,
        "forgeable": sum(episode.solved and episode.grade is Grade.FORGEABLE for episode in episodes) / n,
        "asked": sum("ask_user" in outcome.calls for outcome in outcomes) / n,
        "ran_tests": sum("bash" in outcome.calls for outcome in outcomes) / n,
        "broken": sum(outcome.broken > 0 for outcome in outcomes) / n,
    }
