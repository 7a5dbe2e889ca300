"""The suite of a task: the tests of a real repository, run by the runner that the repository itself uses."""

import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.exam.guarded.runners.base import SuiteRunner
from ostinato.sandbox.exam.guarded.runners.go import GoRunner
from ostinato.sandbox.exam.guarded.runners.node import NodeRunner
from ostinato.sandbox.exam.guarded.runners.python import PYTEST, UNITTEST
from ostinato.types import Task

RUNNERS: Mapping[str, SuiteRunner] = {
    "pytest": PYTEST,
    "unittest": UNITTEST,
    "node": NodeRunner(),
    "go": GoRunner(),
}
"""The runners by their name in a task's table `[metadata.ostinato.suite]`; an entry adds a runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The runner of a task's hidden tests, from its table `[metadata.ostinato.suite]`.

    >>> Suite(runner="pytest").arguments
    ()
    """

    runner: str
    arguments: tuple[str, ...] = ()
    """Further arguments for the runner. The `addopts` of a repository are not used."""

    @classmethod
    def of(cls, task: Task) -> "Suite | None":
        """Read the table of a task; None if it has none. Raises SandboxError."""
        table = task.metadata.get("suite")
        if table is None:
            return None
        runner, arguments = table.get("runner"), table.get("arguments", ())
        if runner not in RUNNERS:
            raise SandboxError(
                f"task {task.id}: `suite` needs a `runner` out of {', '.join(RUNNERS)}, not {runner!r}"
            )
        if isinstance(arguments, str) or not all(isinstance(each, str) for each in arguments):
            raise SandboxError(f"task {task.id}: the `arguments` of `suite` must be a list of strings")
        if not task.test_ids:
            raise SandboxError(f"task {task.id}: a suite needs `test_ids`, the tests that must pass")
        return cls(runner=runner, arguments=tuple(arguments))


def dealt(kinds: Iterable[str], variations: int) -> list[list[str]]:
    """Return the kinds of planted tests for each run of an exam.

    A pass has at least two runs, so each of the two first has one half, at random, and both have the test
    that must pass. Where a pass has one run, that run has all.
    """
    shuffled = random.Random(secrets.randbits(64)).sample(sorted(kinds), len(list(kinds)))
    if not variations:
        return [shuffled]
    halves = [[kind for kind in shuffled[half::2] if kind != "pass"] + ["pass"] for half in range(2)]
    return [halves[run % 2] for run in range(variations + 1)]


def planned(test_ids: Sequence[str], seed: int, kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Return the order of one run: each id with "" for the real test, or the kind of a planted one.

    Run 0 keeps the order of the ids within each file; every other shuffles files, classes and tests. The
    planted tests stand beside a real one, at random, so that no fixture is set up more often for them.
    """
    rng = random.Random(secrets.randbits(64))
    files: dict[str, dict[str, list[str]]] = {}
    for test in test_ids:
        file, _, rest = test.partition("::")
        group = rest.partition("[")[0].rpartition("::")[0]
        files.setdefault(file, {}).setdefault(group, []).append(test)
    names = list(files)
    if seed:
        rng.shuffle(names)
    order = [(test, "") for name in names for test in _tests(files[name], rng, shuffle=bool(seed))]
    if seed and [test for test, _ in order] == list(test_ids):
        order.reverse()
    for kind in kinds:
        place = rng.randrange(len(order))
        order.insert(place + rng.randrange(2), (order[place][0], kind))
    return order


def _tests(groups: dict[str, list[str]], rng: random.Random, *, shuffle: bool) -> list[str]:
    chunks = list(groups.values())
    if shuffle:
        rng.shuffle(chunks)
        for chunk in chunks:
            rng.shuffle(chunk)
    return [test for chunk in chunks for test in chunk]
