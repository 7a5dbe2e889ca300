"""The problems of a run: the streams that its stages draw from, and the held-out ones of the benchmark."""

from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import islice
from random import Random
from secrets import token_hex

from ostinato.loop.config import RunConfig, practice_definition, sources
from ostinato.loop.run import Run
from ostinato.tasks.source import TRAIN, Problem, SourceError
from ostinato.types import Grade, Task

HELD_OUT_SEED = 1_000_003
"""The first seed of the held-out tasks of every run that began before runs had a secret of their own."""
KEY_FILE = "held-out.key"
"""The file of a run folder with the secret from which its held-out tasks are drawn."""
SHARED = (
    f"the held-out tasks of this run are those that all runs once shared (seed {HELD_OUT_SEED}): settings "
    "were chosen by them, so they show how it develops and are no claim; sealed tasks are its own"
)
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
UNDECIDED = "a judge has their tests, but the code that is tested decides whether an assertion holds"


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
    for grade, why in (*WEAK.items(), (Grade.GUARDED, UNDECIDED)):
        ids = sorted(
            " ".join((problem.id, *(f"({each})" for each in problem.undecided[:1])))
            for problem in stored
            if problem.grade is grade and bool(problem.undecided) is (why is UNDECIDED)
        )
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

    They serve to develop: gates and people decide by them. Raises SourceError when a source has too few.
    """
    folder = run.tasks / "held-out"
    seed = HELD_OUT_SEED if has_shared_tasks(run) else _drawn(run, "development")
    return [problem.provide(folder) for problem in _problems(config, seed)]


def sealed(config: RunConfig, run: Run, claim: str) -> list[Task]:
    """Return the tasks for one claim, as many of each split as the benchmark has, and none of its own.

    Only the run's secret and the words of the claim say which. Raises SourceError when a source has too few.
    """
    seed = HELD_OUT_SEED if has_shared_tasks(run) else _drawn(run, "development")
    seen = {problem.key for problem in _problems(config, seed)}
    folder = run.tasks / "sealed"
    return [problem.provide(folder) for problem in _problems(config, _drawn(run, f"sealed/{claim}"), seen)]


def has_shared_tasks(run: Run) -> bool:
    """Return whether the run measures on the tasks that all runs once shared, since it began with them."""
    return not _secret(run)[0]


def _problems(config: RunConfig, seed: int, seen: Collection[str] = ()) -> Iterator[Problem]:
    source = sources(config.tasks)
    for split, count in config.tasks.held_out.items():
        fresh = (problem for problem in source.problems(split, seed) if problem.key not in seen)
        drawn = list(islice(fresh, count))
        if len(drawn) < count:
            besides = f" besides the {count} by which the run develops" if seen else ""
            raise SourceError(
                f"tasks.held_out wants {count} tasks of {split!r}{besides}, and the sources have {len(drawn)}"
            )
        yield from drawn


def _drawn(run: Run, purpose: str) -> int:
    """Return the first seed of a split that the run's secret draws for a purpose."""
    _, secret = _secret(run)
    return int.from_bytes(blake2b(purpose.encode(), key=secret, digest_size=6).digest())


def _secret(run: Run) -> tuple[bool, bytes]:
    """Return whether the development tasks are the run's own, and the secret, made at the first call.

    A folder that has held-out tasks by then began before there were secrets, and goes on with its tasks.
    """
    path = run.directory / KEY_FILE
    if not path.exists():
        own = not (run.tasks / "held-out").exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(f"{'own' if own else 'shared'} {token_hex(32)}\n")
        part.replace(path)
    kind, secret = path.read_text().split()
    return kind == "own", bytes.fromhex(secret)


def _seed(config: RunConfig, purpose: str) -> int:
    return config.seed * 1_000_000 + SEEDS[purpose]
