"""The time of guarded verdicts beside plain `python -m pytest`: the same suite, tree and kind of sandbox.

`guarded_ratio` is for every benchmark with suites of real repositories: `verify` calls it with a suite of its
own. Ours is a pass of `Verifier`, with two runs in two orders, or one of a single run; the peer does as often
what one run needs: it lays out the same tree, creates the same sandbox, runs pytest on the same files, and
destroys it.

    python -m benchmarks.guarded [--rounds 40] [--backend ns|process] [--json]

measures suites of several lengths. A round has ours and the peer in turns; figures are medians over the
rounds with their 95 % order-statistic interval (see `measure.py`).
"""

import argparse
import asyncio
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fuzz.tasks_on_disk import write_suite

from benchmarks.measure import Cpu, Figure, Run, quantile, ratios, table
from ostinato.sandbox import Backend, Exam, Limits, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.guarded.exam import lay_out
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Task

LIMITS = Limits(wall_s=120, cpu_s=100)
SUITES = ((1, 1), (4, 5), (40, 300), (200, 300))
"""The tests of each suite that is measured, and the comparisons of each test."""
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
    plain_ms: Figure
    """The time by the clock of the peer."""
    extra_ms: Figure
    """The time by the clock that ours takes longer."""


async def guarded_ratio(
    backend: Backend, solved: Sequence[Solved], rounds: int, cpu: Cpu, *, variations: int = 1
) -> GuardedRatio:
    """Return the ratios of guarded verdicts on all tasks to plain pytest, one value a round."""
    samples: dict[str, list[float]] = {name: [] for name in ("ours", "ours cpu", "plain", "plain cpu")}
    for call in (_verdict, _pytest):  # the first calls load what all later ones use
        await call(backend, solved[0], variations)
    for _ in range(rounds):
        for name, call in (("ours", _verdict), ("plain", _pytest)):
            began, spent = time.perf_counter(), cpu.seconds()
            for each in solved:
                await call(backend, each, variations)
            samples[name].append(time.perf_counter() - began)
            await asyncio.sleep(SETTLE_S)  # the sandbox that replaces the used one is prepared meanwhile
            samples[f"{name} cpu"].append(cpu.seconds() - spent)
    in_cpu = ratios(samples["ours cpu"], samples["plain cpu"]) if cpu.whole else None
    pairs = [*zip(samples["ours"], samples["plain"], strict=True)]
    return GuardedRatio(
        wall=ratios(samples["ours"], samples["plain"]),
        cpu=in_cpu,
        plain_ms=quantile([plain * 1e3 for _, plain in pairs]),
        extra_ms=quantile([(ours - plain) * 1e3 for ours, plain in pairs]),
    )


async def _verdict(backend: Backend, solved: Solved, variations: int) -> None:
    found = await Verifier(backend, LIMITS, variations=variations).verify(solved.task, solved.changes)
    assert found.passed, found


async def _pytest(backend: Backend, solved: Solved, variations: int) -> None:
    files = dict.fromkeys(test.partition("::")[0] for test in solved.task.test_ids)
    command = shlex.join(["python", "-m", "pytest", "-q", "--tb=no", "-o", "addopts=", *files])
    exam = Exam(repo=solved.task.repo, tests=solved.task.tests, changes=solved.changes)
    for _ in range(variations + 1):
        with tempfile.TemporaryDirectory() as scratch:
            repo = Path(scratch, "repo")
            lay_out(exam, repo)
            sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
            result = await sandbox.exec(command)
            await sandbox.destroy()
        assert result.exit_code == 0, result.output


def make_solved(directory: Path, tests: int = 40, values: int = 300) -> Solved:
    """Write a task with a suite of so many tests that compute, and return it with its solution."""
    head = f"import pytest\nfrom calc import alpha\n\n\n@pytest.mark.parametrize('n', range({tests}))\n"
    body = (
        f"def test_alpha(n):\n    for each in range({values}):\n        assert alpha(n, each) == n + each\n"
    )
    task = write_suite(
        directory,
        {"calc.py": "def alpha(a, b):\n    return a - b\n", "tests/.keep": ""},
        {"tests/test_calc.py": head + body},
        [f"tests/test_calc.py::test_alpha[{n}]" for n in range(tests)],
    )
    return Solved(task=task, changes={"calc.py": b"def alpha(a, b):\n    return a + b\n"})


async def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    found: dict[str, GuardedRatio] = {}
    with tempfile.TemporaryDirectory() as directory:
        backend = await choose_backend(options.backend)
        try:
            for tests, values in SUITES:
                solved = [make_solved(Path(directory, str(tests)), tests, values)]
                for variations, name in enumerate(("one run", "a pass, two runs")):
                    found[f"{tests} tests, {name}"] = await guarded_ratio(
                        backend, solved, options.rounds, run.cpu, variations=variations
                    )
        finally:
            await backend.aclose()
    header = [backend.name, "pytest ms", "extra ms", "ratio by the clock", "in CPU seconds"]
    table(header, [[name, *_cells(each)] for name, each in found.items()])
    figures = {"backend": backend.name, "suites": {name: asdict(each) for name, each in found.items()}}
    run.finish(figures, as_json=options.json)


def _cells(found: GuardedRatio) -> list[str]:
    in_cpu = found.cpu.text(2) if found.cpu else "not counted here"
    return [found.plain_ms.text(1), found.extra_ms.text(1), found.wall.text(2), in_cpu]


if __name__ == "__main__":
    with Run("guarded", "pytest") as opened:
        asyncio.run(main(opened))
