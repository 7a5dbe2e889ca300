"""The time of sandbox calls and verdicts, each beside its plain counterpart, in one run on one repository.

    python -m benchmarks.verify [--rounds 120] [--backend ns|process] [--json]

The peers: a fresh `python -m pytest`, `sh -c`, Python's own file access, and a copy of the folder. Calls run
one after another in blocks, and the blocks of all calls in turns, so that a change of load affects all. Wall
times are quantiles over the rounds, the ratio (peer / ours) is that of the medians of one turn's blocks; CPU
is that of this process and its descendants, each block's mean per call including a wait of 0.2 s after it,
counted by the kernel (`cpuacct`) where root may use it, else left out. In brackets the 95 % order-statistic
interval (see `measure.py`).
"""

import argparse
import asyncio
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fuzz.tasks_on_disk import write_task

from benchmarks.guarded import guarded_ratio, make_solved
from benchmarks.measure import Cpu, Figure, Run, quantile, ratios, table
from ostinato.sandbox import Backend, Sandbox, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Task

BLOCKS, AT_ONCE = 6, 4
"""The fewest blocks that have a 95 % interval of the median, and the verdicts under way at once."""
CALC = "def alpha(a, b):\n    return a {} b\n\n\ndef beta(n):\n    return n * 2\n"
VISIBLE = (
    "from calc import alpha, beta\n\n\ndef test_alpha():\n    assert alpha(2, 3) == 5\n\n\n"
    "def test_beta():\n    assert beta(2) == 4\n"
)
OPTIONS = '[tool.pytest.ini_options]\naddopts = "-qq --tb=no -p no:cacheprovider"\n'
TEXT = b"x = 1\n" * 20
PEERS = {
    "open and close": "peer: copy and remove",
    "read": "peer: read_bytes",
    "write": "peer: write_bytes",
    "shell command": "peer: sh -c",
    "pytest": "peer: python -m pytest",
    "pytest, remembered": "peer: python -m pytest",
    "verdict": "peer: python -m pytest",
    "verdict, no second order": "peer: python -m pytest",
    "verdict on no work": "peer: python -m pytest",
}

Call = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Samples:
    """The measurements of one call, in milliseconds: wall time by round, median and CPU by block."""

    walls: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def figures(self, *, cpu: bool) -> dict[str, Figure | None]:
        wall = {"p50_ms": quantile(self.walls), "p90_ms": quantile(self.walls, 0.9)}
        return {**wall, "cpu_ms": quantile(self.cpu) if cpu else None}


def make_task(directory: Path) -> Task:
    repo = {"calc.py": CALC.format("-"), "test_calc.py": VISIBLE, "pyproject.toml": OPTIONS}
    tests = {"test_hidden.py": VISIBLE.replace("2, 3) == 5", "7, 4) == 11")}
    return write_task(directory, repo, tests, ("test_hidden.py::test_alpha", "test_hidden.py::test_beta"))


async def block(samples: Samples, cpu: Cpu, rounds: int, call: Call) -> None:
    await call()
    await asyncio.sleep(0.1)
    walls, start = [], cpu.seconds()
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        walls.append((time.perf_counter() - began) * 1e3)
    await asyncio.sleep(0.2)  # work that ends in the background counts too
    samples.walls += walls
    samples.medians.append(statistics.median(walls))
    samples.cpu.append((cpu.seconds() - start) * 1e3 / rounds)


async def open_and_close(backend: Backend, repo: Path) -> None:
    await (await backend.create(Spec(repo=repo))).destroy()


async def touch_and_run(sandbox: Sandbox, command: str) -> None:
    """Change the tree before each run, so that no result is remembered."""
    await sandbox.write("stamp", os.urandom(8))
    await sandbox.exec(command)


def our_calls(backend: Backend, sandbox: Sandbox, verifier: Verifier, task: Task) -> dict[str, Call]:
    good, once = {"calc.py": CALC.format("+").encode()}, Verifier(backend, variations=0)
    return {
        "open and close": lambda: open_and_close(backend, task.repo),
        "read": lambda: sandbox.read("calc.py"),
        "write": lambda: sandbox.write("other.py", TEXT),
        "shell command": lambda: touch_and_run(sandbox, "true"),
        "pytest": lambda: touch_and_run(sandbox, "python -m pytest"),
        "pytest, remembered": lambda: sandbox.exec("python -m pytest"),
        "verdict": lambda: verifier.verify(task, good),
        "verdict, no second order": lambda: once.verify(task, good),
        "verdict on no work": lambda: verifier.verify(task, {}),
    }


def peer_calls(repo: Path) -> dict[str, Call]:
    """Return the same calls on a plain folder, `repo`."""
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # as in the sandbox

    async def start(*command: str) -> None:
        await asyncio.to_thread(subprocess.run, command, cwd=repo, env=bare, capture_output=True, check=False)

    async def shell() -> None:
        (repo / "stamp").write_bytes(os.urandom(8))
        await start("sh", "-c", "true")

    async def copy() -> None:
        shutil.rmtree(shutil.copytree(repo, repo.with_name("copy")))

    async def read() -> None:
        (repo / "calc.py").read_bytes()

    async def write() -> None:
        (repo / "other.py").write_bytes(TEXT)

    return {
        "peer: copy and remove": copy,
        "peer: read_bytes": read,
        "peer: write_bytes": write,
        "peer: sh -c": shell,
        "peer: python -m pytest": lambda: start(sys.executable, "-m", "pytest"),
    }


async def rates(backend: Backend, task: Task, rounds: int) -> Figure:
    """Return verdicts per second with `AT_ONCE` under way, one value per block."""
    verifier, good, samples = Verifier(backend, variations=0), {"calc.py": CALC.format("+").encode()}, []
    for _ in range(BLOCKS):
        left, began = iter(range(rounds)), time.perf_counter()

        async def drive(left: Iterator[int]) -> None:
            for _ in left:
                assert (await verifier.verify(task, good)).passed

        await asyncio.gather(*(drive(left) for _ in range(AT_ONCE)))
        samples.append(rounds / (time.perf_counter() - began))
    return quantile(samples)


async def measure(backend: Backend, task: Task, directory: Path, rounds: int, cpu: Cpu) -> dict[str, Samples]:
    folder = Path(shutil.copytree(task.repo, directory / "plain"))
    sandbox, verifier = await backend.create(Spec(repo=task.repo)), Verifier(backend)
    good = await verifier.verify(task, {"calc.py": CALC.format("+").encode()})
    assert good.passed, good
    calls = {**our_calls(backend, sandbox, verifier, task), **peer_calls(folder)}
    samples = {name: Samples() for name in calls}
    for _ in range(BLOCKS):
        for name, call in calls.items():
            await block(samples[name], cpu, math.ceil(rounds / BLOCKS), call)
    await sandbox.destroy()
    return samples


def rows(samples: Mapping[str, Samples], *, cpu: bool) -> dict[str, dict[str, object]]:
    """Return every call's figures, and for sandbox calls the peer's name, median and ratio."""
    done: dict[str, dict[str, object]] = {name: {**each.figures(cpu=cpu)} for name, each in samples.items()}
    for name, peer in PEERS.items():
        ratio = ratios(samples[peer].medians, samples[name].medians)
        done[name] |= {"peer": peer, "peer_p50_ms": done[peer]["p50_ms"], "ratio": ratio}
    return done


def cells(row: Mapping[str, object]) -> list[str]:
    figures = (row[name] for name in ("p50_ms", "p90_ms", "cpu_ms"))
    shown = [figure.text(2) if isinstance(figure, Figure) else "?" for figure in figures]
    ratio = row.get("ratio")
    return [*shown, ratio.text(2) if isinstance(ratio, Figure) else "", str(row.get("peer", ""))]


def plain(row: Mapping[str, object]) -> dict[str, object]:
    return {name: asdict(each) if isinstance(each, Figure) else each for name, each in row.items()}


async def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        backend = await choose_backend(options.backend)
        try:
            task = make_task(Path(directory, "task"))
            samples = await measure(backend, task, Path(directory), options.rounds, run.cpu)
            rate = await rates(backend, task, options.rounds)
            solved = make_solved(Path(directory, "suite"))
            guarded = await guarded_ratio(backend, [solved], math.ceil(options.rounds / 4), run.cpu)
        finally:
            await backend.aclose()
    done = rows(samples, cpu=run.cpu.whole)
    header = [backend.name, "p50 ms", "p90 ms", "CPU ms", "ratio", "to"]
    table(header, [[name, *cells(row)] for name, row in done.items()])
    print(f"verdicts a second, {AT_ONCE} at once, examined once: {rate.text(1)}")
    in_cpu = guarded.cpu.text(2) if guarded.cpu else "not counted here"
    print("guarded pass, two runs / python -m pytest twice in the same kind of sandbox:")
    print(f"  by the clock {guarded.wall.text(2)}, in CPU seconds {in_cpu}")
    named = {name: plain(row) for name, row in done.items()}
    figures = {"backend": backend.name, "blocks": BLOCKS, "rows": named, "verdicts_per_s": asdict(rate)}
    figures["guarded_ratio_vs_pytest"] = asdict(guarded.wall)
    figures["guarded_cpu_ratio_vs_pytest"] = asdict(guarded.cpu) if guarded.cpu else None
    run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    with Run("verify", "pytest") as opened:
        asyncio.run(main(opened))
