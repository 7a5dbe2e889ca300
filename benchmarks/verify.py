"""Sandboxes and verdicts against starting `python -m pytest`, in the same run on the same repository.

    python benchmarks/verify.py [--rounds 50] [--backend ns|process] [--json]

Wall times are medians of one after another; CPU is that of this process and all its children, read from
/proc/stat-like accounting by the kernel (`cpuacct`) where root may use it, else left out.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ostinato.sandbox import Backend, Sandbox, Verifier, choose_backend
from ostinato.types import Task

CPU_GROUP = Path("/sys/fs/cgroup/cpuacct")
CALC = "def alpha(a, b):\n    return a {} b\n\n\ndef beta(n):\n    return n * 2\n"
VISIBLE = (
    "from calc import alpha, beta\n\n\ndef test_alpha():\n    assert alpha(2, 3) == 5\n\n\n"
    "def test_beta():\n    assert beta(2) == 4\n"
)
OPTIONS = '[tool.pytest.ini_options]\naddopts = "-qq --tb=no -p no:cacheprovider"\n'


class Cpu:
    """CPU milliseconds of this process and everything it starts, None where nobody counts them."""

    def __init__(self) -> None:
        self._group = CPU_GROUP / f"bench-{os.getpid()}"
        try:
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
            self.known = True
        except OSError:
            self.known = False

    def read(self) -> float:
        return int((self._group / "cpuacct.usage").read_text()) / 1e6 if self.known else 0.0

    def leave(self) -> None:
        if self.known:
            (CPU_GROUP / "cgroup.procs").write_text(str(os.getpid()))
            self._group.rmdir()


def make_task(directory: Path) -> Task:
    repo, tests = directory / "environment" / "repo", directory / "tests"
    repo.mkdir(parents=True)
    tests.mkdir()
    for name, text in (("calc.py", CALC.format("-")), ("test_calc.py", VISIBLE), ("pyproject.toml", OPTIONS)):
        (repo / name).write_text(text)
    (tests / "test_hidden.py").write_text(VISIBLE.replace("2, 3) == 5", "7, 4) == 11"))
    ids = ("test_hidden.py::test_alpha", "test_hidden.py::test_beta")
    return Task(
        id="b", kind="fix", split="seeds", key="k", instruction="i", directory=directory, test_ids=ids
    )


async def measure(cpu: Cpu, rounds: int, call: Callable[[], Awaitable[object]]) -> dict[str, float]:
    await call()
    await asyncio.sleep(0.1)
    walls, start = [], cpu.read()
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        walls.append((time.perf_counter() - began) * 1e3)
    await asyncio.sleep(0.2)  # what ends in the background counts too
    p90 = sorted(walls)[int(len(walls) * 0.9)]
    return {"p50_ms": statistics.median(walls), "p90_ms": p90, "cpu_ms": (cpu.read() - start) / rounds}


async def open_and_close(backend: Backend, repo: Path) -> None:
    await (await backend.open(repo)).close()


async def touch_and_run(sandbox: Sandbox, command: str) -> None:
    """A new tree each time: nothing is remembered."""
    await sandbox.write("stamp", os.urandom(8))
    await sandbox.exec(command)


async def run(backend: Backend, task: Task, rounds: int, cpu: Cpu) -> dict[str, dict[str, float]]:
    sandbox, verifier = await backend.open(task.repo), Verifier(backend)
    good = {"calc.py": CALC.format("+").encode()}
    assert (await verifier.verify(task, good)).passed
    fresh = [sys.executable, "-m", "pytest"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # as in the sandbox
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "open and close": lambda: open_and_close(backend, task.repo),
        "read": lambda: sandbox.read("calc.py"),
        "write": lambda: sandbox.write("other.py", b"x = 1\n" * 20),
        "shell command": lambda: touch_and_run(sandbox, "true"),
        "pytest": lambda: touch_and_run(sandbox, "python -m pytest"),
        "pytest, remembered": lambda: sandbox.exec("python -m pytest"),
        "verdict": lambda: verifier.verify(task, good),
        "peer: python -m pytest": lambda: asyncio.to_thread(
            subprocess.run, fresh, cwd=task.repo, env=bare, capture_output=True, check=False
        ),
    }
    return {name: await measure(cpu, rounds, call) for name, call in calls.items()}


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cpu = Cpu()
    with tempfile.TemporaryDirectory() as directory:
        backend = await choose_backend(options.backend)
        try:
            rows = await run(backend, make_task(Path(directory) / "task"), options.rounds, cpu)
        finally:
            await backend.aclose()
            cpu.leave()
    if options.json:
        print(json.dumps({"backend": backend.name, "rows": rows}))
        return
    print(f"{backend.name:26}{'p50 ms':>9}{'p90 ms':>9}{'CPU ms':>9}")
    for name, row in rows.items():
        spent = f"{row['cpu_ms']:9.2f}" if cpu.known else "        ?"
        print(f"{name:26}{row['p50_ms']:9.2f}{row['p90_ms']:9.2f}{spent}")


if __name__ == "__main__":
    asyncio.run(main())
