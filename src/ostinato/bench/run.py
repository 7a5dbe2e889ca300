"""The benchmark: held-out tasks × passes × one version ─► Measurement and Report, with an interval by split.

A void episode (the infrastructure failed) is run again, at most `RETRIES` times; it is never scored as a
failure.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ostinato.deploy.outcomes import Measurement, TaskOutcome, score
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger
from ostinato.types import Grade, Report, Score, Source, State, Task

RETRIES = 2


class BenchError(RuntimeError):
    """An episode stayed void, so the benchmark has no figure."""


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
        """Run every task `passes` times and store the Report. Raises BenchError."""
        runs = [self._episode(task, on_done) for _ in range(passes) for task in tasks]
        episodes = await asyncio.gather(*runs)
        self._account(episodes)
        outcomes = tuple(outcome(episodes[index :: len(tasks)]) for index in range(len(tasks)))
        report = Report(
            version=version, scores=scores(outcomes), rates=rates(episodes), harness=self._runner.harness
        )
        self._store.add_report(report)
        return Measurement(report=report, outcomes=outcomes)

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


def outcome(passes: Sequence[Episode]) -> TaskOutcome:
    """Return the results of all passes over one task."""
    task = passes[0].task
    return TaskOutcome(
        task=task.id,
        split=task.split,
        cluster=str(task.metadata.get("cluster", task.id)),
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
