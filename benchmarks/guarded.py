"""The time of guarded verdicts beside plain `python -m pytest`: the same suite, tree and kind of sandbox.

`guarded_ratio` is for every benchmark with suites of real repositories: `verify` calls it with a suite of its
own. Ours is one run of `Verifier` (without the second run in another order, which a failure does not have);
the peer lays out the same tree, creates the same sandbox, runs pytest on the same files, and destroys it.
"""

import math
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Figure, ratios
from ostinato.sandbox import Backend, Exam, Limits, Spec
from ostinato.sandbox.exam.guarded_exam import lay_out
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Task

LIMITS = Limits(wall_s=120, cpu_s=100)
TESTS, VALUES = 40, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A task with a suite, and changes that solve it."""

    task: Task
    changes: Mapping[str, bytes | None]


async def guarded_ratio(backend: Backend, solved: Sequence[Solved], rounds: int) -> Figure:
    """Return the time of guarded verdicts on all tasks over that of plain pytest, one value a round."""
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(math.fsum([await _timed_verdict(backend, each) for each in solved]))
        plain.append(math.fsum([await _timed_pytest(backend, each) for each in solved]))
    return ratios(ours, plain)


async def _timed_verdict(backend: Backend, solved: Solved) -> float:
    began = time.perf_counter()
    found = await Verifier(backend, LIMITS, variations=0).verify(solved.task, solved.changes)
    assert found.passed, found
    return time.perf_counter() - began


async def _timed_pytest(backend: Backend, solved: Solved) -> float:
    files = dict.fromkeys(test.partition("::")[0] for test in solved.task.test_ids)
    command = shlex.join(["python", "-m", "pytest", "-q", "--tb=no", "-o", "addopts=", *files])
    exam = Exam(repo=solved.task.repo, tests=solved.task.tests, changes=solved.changes)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        repo = Path(scratch, "repo")
        lay_out(exam, repo)
        sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
        result = await sandbox.exec(command)
        await sandbox.destroy()
    assert result.exit_code == 0, result.output
    return time.perf_counter() - began


def make_solved(directory: Path) -> Solved:
    """Write a task with a suite of TESTS tests that compute, and return it with its solution."""
    repo, suite = directory / "environment/repo", directory / "tests/suite/tests"
    for folder in (repo / "tests", suite):
        folder.mkdir(parents=True)
    (repo / "calc.py").write_text("def alpha(a, b):\n    return a - b\n")
    head = f"import pytest\nfrom calc import alpha\n\n\n@pytest.mark.parametrize('n', range({TESTS}))\n"
    body = (
        f"def test_alpha(n):\n    for each in range({VALUES}):\n        assert alpha(n, each) == n + each\n"
    )
    (suite / "test_calc.py").write_text(head + body)
    ids = tuple(f"tests/test_calc.py::test_alpha[{n}]" for n in range(TESTS))
    task = Task(
        id="s",
        kind="fix",
        split="seeds",
        key="s",
        instruction="i",
        directory=directory,
        test_ids=ids,
        metadata={"suite": {"runner": "pytest"}},
    )
    return Solved(task=task, changes={"calc.py": b"def alpha(a, b):\n    return a + b\n"})
