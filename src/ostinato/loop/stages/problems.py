"""The problems of a run: the streams that its stages draw from, and the held-out ones of the benchmark."""

from collections.abc import Iterator
from itertools import islice
from random import Random

from ostinato.loop.config import RunConfig, practice_definition, sources
from ostinato.loop.run import Run
from ostinato.tasks.source import TRAIN, Problem, SourceError
from ostinato.types import Grade, Task

HELD_OUT_SEED = 1_000_003
"""The first seed of the benchmark's tasks: the same whatever the run's seed, so that runs can be compared."""
SEEDS = {"lessons": 0, "practice": 500_000, "live": 600_000, "ab": 700_000, "corpus": 900_000}
"""The first seed of each stream, within the million of the run's own seed."""
CORPUS_TASKS = 800
NAMED = 5
"""The tasks that a sentence about many names."""
WEAK = {
    Grade.GUARDED: "their suite shares a process with the code it tests, which can fool it",
    Grade.FORGEABLE: "the code that is tested could write the report itself",
}
"""The reason why a pass of each lower grade may be no solution."""


def stream(config: RunConfig, purpose: str) -> Iterator[Problem]:
    """Yield the problems of the run's own seed for one purpose, a key of `SEEDS`.

    Raises SourceError where a source that ends has no more.
    """
    yield from sources(config.tasks).problems(TRAIN, _seed(config, purpose))
    raise SourceError(
        f"the sources of [tasks] have no more tasks for {purpose}, since each is shown once: "
        "add a source, or make the run shorter"
    )


def paid(config: RunConfig) -> Iterator[Problem]:
    """Yield practice's problems, without those whose pass its reward does not pay for.

    On those a session could only lose, by its effort and its faults, and would learn to do nothing.
    """
    lowest = practice_definition(config.practice).lowest_grade
    return (problem for problem in stream(config, "practice") if problem.grade.at_least(lowest))


def unpaid(config: RunConfig) -> list[str]:
    """Return a sentence for each grade of tasks that practice leaves out since their pass pays nothing.

    Raises SourceError when it leaves out all.
    """
    source, lowest = sources(config.tasks), practice_definition(config.practice).lowest_grade
    stored = source.stored(TRAIN)
    said = []
    for grade, why in WEAK.items():
        ids = sorted(problem.id for problem in stored if problem.grade is grade)
        if ids and not grade.at_least(lowest):
            more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
            said.append(
                f"{len(ids)} of {len(stored)} stored tasks pay nothing and are left out of practice: "
                f"they are `{grade}` ({why}), and the reward pays from `{lowest}` on: "
                f"{', '.join(ids[:NAMED])}{more}"
            )
    if said and not any(problem.grade.at_least(lowest) for problem in source.problems(TRAIN, 0)):
        raise SourceError(
            f"practice has no task that its reward pays for: {'; '.join(said)}. Add others to [tasks], or "
            "name a reward with a lower `lowest_grade` by `practice.reward` (docs/verdict.md says what "
            "that costs)"
        )
    return said


def corpus(config: RunConfig) -> Iterator[str]:
    """Yield practice text for the tokenizer."""
    return sources(config.tasks).text(CORPUS_TASKS, _seed(config, "corpus"), Random(config.seed))


def held_out(config: RunConfig, run: Run) -> list[Task]:
    """Return the benchmark's tasks, which are written to the run folder when they lie nowhere yet.

    Raises SourceError when a source has too few.
    """
    source = sources(config.tasks)
    tasks: list[Task] = []
    for split, count in config.tasks.held_out.items():
        drawn = list(islice(source.problems(split, HELD_OUT_SEED), count))
        if len(drawn) < count:
            raise SourceError(
                f"tasks.held_out wants {count} tasks of {split!r}, and the sources have {len(drawn)}"
            )
        tasks += [problem.provide(run.tasks / "held-out") for problem in drawn]
    return tasks


def _seed(config: RunConfig, purpose: str) -> int:
    return config.seed * 1_000_000 + SEEDS[purpose]
