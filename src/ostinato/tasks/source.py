"""Sources of tasks: any of them feeds teaching, practice, live simulation and the benchmark alike.

A source yields problems, whose keys are known before anything of them is written, so that a stage reserves
the key first and pays for the task only when it is the first to show it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Protocol

from ostinato.extend import Registry, guarded
from ostinato.tasks.base import IMPORTED, TaskError, load_task
from ostinato.types import Grade, Task

TRAIN = "train"
"""The split that lessons, practice and live simulation draw from; every other split is held out."""
SETTINGS = "task.toml"
DEPTH = 3
"""The levels of folders that a dataset may have above its tasks."""
TEXT_FILES = 8
"""The files of one task whose text a tokenizer is trained on."""
TEXT_BYTES = 20_000


class SourceError(Exception):
    """A source cannot give what is asked of it; the message names the source and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One task that a source can give, with what must be known of it before it is shown.

    >>> Problem(
    ...     id="t", key="9d1c", kind="fix", split="train", grade=Grade.JUDGED, provide=lambda f: load_task(f)
    ... ).key
    '9d1c'
    """

    id: str
    key: str
    """Hash of the semantic key: two problems with the same key are the same problem."""
    kind: str
    split: str
    grade: Grade
    """The grade of verdicts on it."""
    undecided: tuple[str, ...] = ()
    """Why that is low although a judge has its tests: see `Task.undecided`."""
    provide: Callable[[Path], Task]
    """Return the task, which the given folder has under its id: written there, or a link to where it lies."""

    @classmethod
    def of(cls, task: Task) -> "Problem":
        """Return the problem of a task that lies on disk already; a link in the folder says it was given."""

        def linked(folder: Path) -> Task:
            folder.mkdir(parents=True, exist_ok=True)
            link = folder / task.id
            if not link.is_symlink():
                link.symlink_to(task.directory.resolve())
            return task

        return cls(
            id=task.id,
            key=task.key,
            kind=task.kind,
            split=task.split,
            grade=task.grade,
            undecided=task.undecided,
            provide=linked,
        )


class TaskSource(Protocol):
    """A place that tasks come from."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of its splits."""
        ...

    def problems(self, split: str, seed: int) -> Iterator[Problem]:
        """Yield the problems of a split, each key once, in an order that `seed` alone decides.

        A source that generates its problems never ends. One without the split yields nothing.
        """
        ...

    def stored(self, split: str) -> tuple[Problem, ...]:
        """Return the problems of a split that lie in a file; those that are generated are none of them."""
        ...

    def text(self, tasks: int, seed: int, rng: Random) -> Iterator[str]:
        """Yield text of `tasks` problems of the split `train`, for a tokenizer to be trained on."""
        ...


class FolderSource:
    """The Harbor tasks below a folder: one task, or a dataset as folders of tasks.

    A foreign task, which names no split, counts as one of the split `foreign`.
    """

    def __init__(self, path: Path, *, foreign: str = IMPORTED) -> None:
        self.path = path
        found = [load_task(directory) for directory in task_folders(path)]
        if not found:
            raise SourceError(f"{path} holds no task: name a folder with {SETTINGS} in it or below it")
        self.tasks = tuple(replace(task, split=foreign) if task.split == IMPORTED else task for task in found)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted({task.split for task in self.tasks}))

    def problems(self, split: str, seed: int) -> Iterator[Problem]:
        return ordered((Problem.of(task) for task in self.tasks if task.split == split), split, seed)

    def stored(self, split: str) -> tuple[Problem, ...]:
        return tuple(self.problems(split, 0))

    def text(self, tasks: int, seed: int, rng: Random) -> Iterator[str]:
        for problem in islice(self.problems(TRAIN, seed), tasks):
            task = problem.provide(self.path)
            yield task.instruction
            files = [path for path in sorted(task.repo.rglob("*.py")) if path.is_file()]
            for path in rng.sample(files, min(TEXT_FILES, len(files))):
                yield path.read_text(encoding="utf-8", errors="replace")[:TEXT_BYTES]


class MixtureSource:
    """Several sources, of which each is drawn from as often as its weight says until it has no more."""

    def __init__(self, parts: Sequence[tuple[TaskSource, float]]) -> None:
        if not parts or min(weight for _, weight in parts) <= 0:
            raise SourceError("a mixture needs at least one source, and a weight above zero for each")
        self._parts = tuple(parts)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(split for source, _ in self._parts for split in source.splits))

    def problems(self, split: str, seed: int) -> Iterator[Problem]:
        streams = [(source.problems(split, seed), weight) for source, weight in self._parts]
        rng, keys = Random(f"mixture/{split}/{seed}"), set[str]()
        while streams:
            drawn = rng.choices(range(len(streams)), [weight for _, weight in streams])[0]
            problem = next(streams[drawn][0], None)
            if problem is None:
                del streams[drawn]
            elif problem.key not in keys:
                keys.add(problem.key)
                yield problem

    def stored(self, split: str) -> tuple[Problem, ...]:
        found = {problem.key: problem for source, _ in self._parts for problem in source.stored(split)}
        return tuple(found.values())

    def text(self, tasks: int, seed: int, rng: Random) -> Iterator[str]:
        parts = [(source, weight) for source, weight in self._parts if TRAIN in source.splits]
        total = sum(weight for _, weight in parts)
        for source, weight in parts:
            yield from source.text(round(tasks * weight / total), seed, rng)


def ordered(problems: Iterable[Problem], split: str, seed: int) -> Iterator[Problem]:
    """Yield the problems of a split, the first of each key, in the order of the seed."""
    by_key: dict[str, Problem] = {}
    for problem in problems:
        by_key.setdefault(problem.key, problem)
    order = sorted(by_key)
    Random(f"{split}/{seed}").shuffle(order)
    return (by_key[key] for key in order)


def mixture(parts: Mapping[str, tuple[TaskSource, float]]) -> TaskSource:
    """Return the mixture of named sources; one source alone is itself."""
    if len(parts) == 1:
        ((source, _),) = parts.values()
        return source
    return MixtureSource(list(parts.values()))


def task_folders(path: Path) -> list[Path]:
    """Return the task folders at or below `path`, sorted; a task has none within itself."""
    if not path.is_dir():
        raise TaskError(path, "no such directory", "name a folder of Harbor tasks")
    found, level = [], [path]
    for _ in range(DEPTH + 1):
        found += [folder for folder in level if (folder / SETTINGS).is_file()]
        level = [
            below
            for folder in level
            if not (folder / SETTINGS).is_file()
            for below in sorted(folder.iterdir())
            if below.is_dir() and not below.name.startswith(".")
        ]
    return sorted(found)


MakeSource = Callable[[Mapping[str, str]], TaskSource]
SOURCES: Registry[MakeSource] = Registry("task source", {})
"""The makers of the task sources of plug-ins; `loop.config.sources` has ours."""


def task_source(name: str) -> Callable[[MakeSource], MakeSource]:
    """Return a decorator that adds a maker of task sources, for `use = "NAME"` in `[tasks.sources.…]`.

    The maker, a class or a function, gets the table `options` of that source. A problem whose task cannot be
    provided raises TaskError, and is left out.
    """

    def add(maker: MakeSource) -> MakeSource:
        SOURCES.add(name, guarded(f"task source {name}", maker))
        return maker

    return add
