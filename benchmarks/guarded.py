"""The time of guarded verdicts beside plain `python -m pytest`: the same suite, tree and kind of sandbox.

`guarded_ratio` is for every benchmark with suites of real repositories: `verify` calls it with a suite of its
own. Ours is a pass of `Verifier`, which has two runs in two orders; the peer does twice what one run needs:
it lays out the same tree, creates the same sandbox, runs pytest on the same files, and destroys it.
"""

import asyncio
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.tasks_on_disk import write_suite

from benchmarks.measure import Cpu, Figure, ratios
from ostinato.sandbox import Backend, Exam, Limits, Spec
from ostinato.sandbox.exam.guarded_exam import lay_out
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Task

LIMITS = Limits(wall_s=120, cpu_s=100)
TESTS, VALUES = 40, 300
RUNS = 2
"""The runs of a pass."""
SETTLE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A task with a suite, and changes that solve it."""

    task: Task
    changes: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRatio:
    """The price of guarded verdicts over that of plain pytest, by the clock and in CPU seconds.

    The second is None where the kernel does not count a group of processes. It holds under load, which
    the first does not.
    """

    wall: Figure
    cpu: Figure | None


async def guarded_ratio(backend: Backend, solved: Sequence[Solved], rounds: int, cpu: Cpu) -> GuardedRatio:
    """Return the ratios of guarded verdicts on all tasks to plain pytest, one value a round."""
    samples: dict[str, list[float]] = {name: [] for name in ("ours", "ours cpu", "plain", "plain cpu")}
    for call in (_verdict, _pytest):  # the first calls load what all later ones use
        await call(backend, solved[0])
    for _ in range(rounds):
        for name, call in (("ours", _verdict), ("plain", _pytest)):
            began, spent = time.perf_counter(), cpu.seconds()
            for each in solved:
                await call(backend, each)
            samples[name].append(time.perf_counter() - began)
            await asyncio.sleep(SETTLE_S)  # the sandbox that replaces the used one is prepared meanwhile
            samples[f"{name} cpu"].append(cpu.seconds() - spent)
    in_cpu = ratios(samples["ours cpu"], samples["plain cpu"]) if cpu.whole else None
    return GuardedRatio(wall=ratios(samples["ours"], samples["plain"]), cpu=in_cpu)


async def _verdict(backend: Backend, solved: Solved) -> None:
    found = await Verifier(backend, LIMITS).verify(solved.task, solved.changes)
    assert found.passed, found


async def _pytest(backend: Backend, solved: Solved) -> None:
    files = dict.fromkeys(test.partition("::")[0] for test in solved.task.test_ids)
    command = shlex.join(["python", "-m", "pytest", "-q", "--tb=no", "-o", "addopts=", *files])
    exam = Exam(repo=solved.task.repo, tests=solved.task.tests, changes=solved.changes)
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as scratch:
            repo = Path(scratch, "repo")
            lay_out(exam, repo)
            sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
            result = await sandbox.exec(command)
            await sandbox.destroy()
        assert result.exit_code == 0, result.output


def make_solved(directory: Path) -> Solved:
    """Write a task with a suite of TESTS tests that compute, and return it with its solution."""
    head = f"import pytest\nfrom calc import alpha\n\n\n@pytest.mark.parametrize('n', range({TESTS}))\n"
    body = (
        f"def test_alpha(n):\n    for each in range({VALUES}):\n        assert alpha(n, each) == n + each\n"
    )
    task = write_suite(
        directory,
        {"calc.py": "def alpha(a, b):\n    return a - b\n", "tests/.keep": ""},
        {"tests/test_calc.py": head + body},
        [f"tests/test_calc.py::test_alpha[{n}]" for n in range(TESTS)],
    )
    return Solved(task=task, changes={"calc.py": b"def alpha(a, b):\n    return a + b\n"})
