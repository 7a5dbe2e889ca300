"""Sandboxes of every backend that works here, beside bubblewrap, `runsc do` and SWE-ReX, in the same run.

    python -m benchmarks.sandbox [--backends ns,process] [--rounds 100] [--live 500] [--json]

One key for each backend and peer; null where it has no such thing:

    start_p50_ms, start_p99_ms   from the call to a sandbox that takes commands; of a peer, until `true` ended
    fork_p50_ms                  from the call to one more that takes commands, after eight files were written
    fork_answer_ms               the same, until a command in the fork has answered
    envs_per_s                   created and destroyed, four at a time
    mb_each, live_500_s          memory that 500 at once take of the machine, and the time to create them
    snapshot_pause_ms            how long a sandbox stands still for a snapshot of its files
    step_ratio                   `python -m pytest` in a sandbox over the same in a bare directory
    step_warm_ratio              the same, where the sandbox may run it without starting Python

A peer that is not installed is named with the reason. Steps inside and outside go in turns, so that a change
of load meets both; their ratio is the median over the turns.
"""

import argparse
import asyncio
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Run, quantile, table
from benchmarks.verify import CALC, make_task
from ostinato.sandbox import Backend, Sandbox, SandboxError, SnapshotKind, Spec, Unsupported, Verifier
from ostinato.sandbox.probe import KINDS, probe

KEYS = (
    *("start_p50_ms", "start_p99_ms", "fork_p50_ms", "fork_answer_ms", "envs_per_s", "mb_each", "live_500_s"),
    *("snapshot_pause_ms", "step_ratio", "step_warm_ratio", "verdict_p50_ms", "verdicts_per_s"),
)
PATIENCE_S = 12.0
"""How long one kind of call may be repeated: slow engines make fewer rounds."""
FEW = 30
"""A start slower than this many milliseconds is not made 500 times at once."""
HEART = "import time\nwhile True: print(time.monotonic(), flush=True); time.sleep(0.001)"
FRESH = "python -m pytest -q; true"
Row = dict[str, float | None]
Call = Callable[[], Awaitable[object]]


async def timed(call: Call) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1e3


async def repeat(rounds: int, once: Callable[[], Awaitable[float]]) -> list[float]:
    """What `once` answers, `rounds` times or as often as the patience lasts, at least twice."""
    end, found = time.monotonic() + PATIENCE_S, [await once() for _ in range(2)]
    while len(found) < rounds + 2 and time.monotonic() < end:
        found.append(await once())
    return found[1:]  # the first warms up


class Trial:
    """All figures of one backend."""

    def __init__(self, backend: Backend, folder: Path, rounds: int, live: int) -> None:
        self._backend = backend
        self._task = make_task(folder)
        self._spec = Spec(repo=self._task.repo)
        self._rounds = rounds
        self._live = live
        self.row: Row = dict.fromkeys(KEYS)

    async def run(self) -> Row:
        await self._start()
        await self._throughput()
        for measure in (self._fork, self._pause, self._step, self._verdict):
            try:
                await measure()
            except Unsupported:
                continue
        if (self.row["start_p50_ms"] or 0) < FEW:
            await self._many()
        return self.row

    async def _start(self) -> None:
        async def once() -> float:
            start = time.perf_counter()
            sandbox = await self._backend.create(self._spec)
            took = (time.perf_counter() - start) * 1e3
            await sandbox.destroy()
            await asyncio.sleep(0.02)  # one at a time: what a burst costs is `envs_per_s`
            return took

        walls = await repeat(self._rounds, once)
        self.row["start_p50_ms"], self.row["start_p99_ms"] = (
            round(quantile(walls, q).value, 2) for q in (0.5, 0.99)
        )

    async def _throughput(self) -> None:
        count, end = 0, time.monotonic() + 3.0

        async def churn() -> None:
            nonlocal count
            while time.monotonic() < end:
                await (await self._backend.create(self._spec)).destroy()
                count += 1

        start = time.monotonic()
        await asyncio.gather(*(churn() for _ in range(4)))
        self.row["envs_per_s"] = round(count / (time.monotonic() - start), 1)

    async def _fork(self) -> None:
        if self._backend.capabilities.fork is None:
            return
        sandbox = await self._written()
        answers: list[float] = []

        async def once() -> float:
            start = time.perf_counter()
            (fork,) = await sandbox.fork()
            took = (time.perf_counter() - start) * 1e3
            await fork.exec("cat f1")
            answers.append((time.perf_counter() - start) * 1e3)
            await fork.destroy()
            return took

        self.row["fork_p50_ms"] = round(statistics.median(await repeat(self._rounds, once)), 2)
        self.row["fork_answer_ms"] = round(statistics.median(answers), 2)
        await sandbox.destroy()

    async def _written(self) -> Sandbox:
        sandbox = await self._backend.create(self._spec)
        await sandbox.exec("for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; done; rm test_calc.py")
        return sandbox

    async def _pause(self) -> None:
        """The longest silence of a heart that beats each millisecond, at every snapshot, less a usual one."""
        if SnapshotKind.FILESYSTEM not in self._backend.capabilities.snapshots:
            return
        sandbox = await self._written()
        if not self._backend.capabilities.pause:
            return
        await sandbox.write("heart.py", HEART.encode())
        beats: list[float] = []
        heart = await sandbox.start("exec python heart.py", timeout_s=600)
        listener = asyncio.create_task(listen(heart.output(), beats))

        async def once() -> float:
            await asyncio.sleep(0.1)
            seen = max(len(beats) - 1, 0)
            await self._backend.remove(await sandbox.snapshot())
            await asyncio.sleep(0.1)
            gaps = [b - a for a, b in zip(beats[seen:], beats[seen + 1 :], strict=False)]
            return (max(gaps) - statistics.median(gaps)) * 1e3

        self.row["snapshot_pause_ms"] = round(statistics.median(await repeat(20, once)), 2)
        await heart.signal(9)
        await asyncio.gather(heart.wait(), listener)
        await sandbox.destroy()

    async def _step(self) -> None:
        bare = Path(shutil.copytree(self._task.repo, self._task.repo.with_name("bare")))
        (bare / "calc.py").write_text(CALC.format("+"))
        sandbox = await self._backend.create(self._spec)
        await sandbox.write("calc.py", CALC.format("+").encode())
        outside = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        outside["PATH"] = f"{Path(sys.executable).parent}:{outside['PATH']}"
        fresh, warm = [], []
        for turn in range(max(self._rounds // 5, 6)):
            await sandbox.write("stamp", b"%d" % turn)
            ours = await timed(lambda: sandbox.exec(FRESH))
            await sandbox.write("stamp", b"%d!" % turn)
            short = await timed(lambda: sandbox.exec("python -m pytest -q"))
            theirs = await timed(lambda: shell(FRESH, bare, outside))
            fresh.append(ours / theirs)
            warm.append(short / theirs)
        self.row["step_ratio"], self.row["step_warm_ratio"] = (
            round(statistics.median(each), 3) for each in (fresh, warm)
        )
        await sandbox.destroy()
        await asyncio.to_thread(shutil.rmtree, bare)

    async def _verdict(self) -> None:
        verifier, good = Verifier(self._backend), {"calc.py": CALC.format("+").encode()}
        first = await verifier.verify(self._task, good)
        assert first.passed, first

        async def once() -> float:
            return await timed(lambda: verifier.verify(self._task, good))

        self.row["verdict_p50_ms"] = round(statistics.median(await repeat(self._rounds, once)), 2)
        start = time.perf_counter()
        many = max(8, min(self._rounds, int(4000 / (self.row["verdict_p50_ms"] or 1))))
        await asyncio.gather(*(verifier.verify(self._task, good) for _ in range(many)))
        self.row["verdicts_per_s"] = round(many / (time.perf_counter() - start), 1)

    async def _many(self) -> None:
        before, start = available_mb(), time.perf_counter()
        made = await asyncio.gather(*(self._backend.create(self._spec) for _ in range(self._live)))
        self.row["live_500_s"] = round((time.perf_counter() - start) * 500 / self._live, 3)
        await asyncio.sleep(0.5)
        self.row["mb_each"] = round(max(before - available_mb(), 0) / self._live, 2)
        await asyncio.gather(*(sandbox.destroy() for sandbox in made))


async def listen(output: Any, beats: list[float]) -> None:
    rest = b""
    async for data in output:
        *lines, rest = (rest + data).split(b"\n")
        beats += map(float, lines)


async def shell(command: str, folder: Path, environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", command),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    await process.communicate()


def available_mb() -> float:
    rows = Path("/proc/meminfo").read_text().splitlines()
    return next(int(row.split()[1]) / 1024 for row in rows if row.startswith("MemAvailable"))


BWRAP = "bwrap --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --unshare-all true"
RUNSC = "runsc --network=none --ignore-cgroups do true"


async def command_peer(command: str, rounds: int) -> Row:
    """A program that runs `true` in a sandbox of its own."""
    if shutil.which(command.split(maxsplit=1)[0]) is None:
        raise SandboxError(f"{command.split(maxsplit=1)[0]} is not installed")

    async def once() -> float:
        start = time.perf_counter()
        await run_once(command)
        return (time.perf_counter() - start) * 1e3

    walls, start = await repeat(rounds, once), time.perf_counter()
    count = max(len(walls) // 4, 1)

    async def churn() -> None:
        for _ in range(count):
            await run_once(command)

    await asyncio.gather(*(churn() for _ in range(4)))
    speed = 4 * count / (time.perf_counter() - start - 0.0)
    return starts(walls) | {"envs_per_s": round(speed, 1)}


async def run_once(command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        said = output.decode(errors="replace").strip()[-200:]
        raise SandboxError(f"{command.split(maxsplit=1)[0]} failed: {said}")


def starts(walls: list[float]) -> Row:
    p50, p99 = (round(quantile(walls, q).value, 2) for q in (0.5, 0.99))
    return dict.fromkeys(KEYS) | {"start_p50_ms": p50, "start_p99_ms": p99}


async def swerex_peer(rounds: int) -> Row:
    """SWE-ReX's deployment on this machine: no isolation, a shell session."""
    if importlib.util.find_spec("swerex") is None:
        raise SandboxError("swerex is not installed (pip install swe-rex)")
    from swerex.deployment.local import LocalDeployment
    from swerex.runtime.abstract import CreateBashSessionRequest

    async def once() -> float:
        start = time.perf_counter()
        deployment = LocalDeployment()
        await deployment.start()
        try:
            await deployment.runtime.create_session(CreateBashSessionRequest())
            return (time.perf_counter() - start) * 1e3
        finally:
            await deployment.stop()

    try:
        return starts(await repeat(rounds, once))
    except Exception as error:  # whatever it raises: it is not ours, and the others' figures stand
        raise SandboxError(f"swerex failed: {str(error).partition(chr(10))[0]}") from error


async def measured(name: str, rounds: int, live: int) -> Row:
    backend = await probe(name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return await Trial(backend, Path(folder, "task"), rounds, live).run()
        finally:
            await backend.aclose()


async def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", default=",".join(KINDS), help="of " + ", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--live", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    trials: dict[str, Callable[[], Awaitable[Row]]] = {
        name: lambda name=name: measured(name, options.rounds, options.live)
        for name in options.backends.split(",")
    }
    trials |= {
        "peer: bubblewrap": lambda: command_peer(BWRAP, options.rounds),
        "peer: runsc do": lambda: command_peer(RUNSC, options.rounds),
        "peer: swe-rex local": lambda: swerex_peer(options.rounds),
    }
    found: dict[str, Row] = {}
    missing: dict[str, str] = {}
    for name, trial in trials.items():
        try:
            found[name] = await trial()
        except SandboxError as error:
            missing[name] = str(error)
    show(found, missing)
    run.finish({"backends": found, "missing": missing}, as_json=options.json)


def show(found: dict[str, Row], missing: dict[str, str]) -> None:
    header = ["", *found]
    rows = [
        [key, *("" if row[key] is None else f"{row[key]:,.2f}" for row in found.values())] for key in KEYS
    ]
    table(header, rows)
    for name, why in missing.items():
        print(f"{name}: not measured: {why}")


if __name__ == "__main__":
    with Run("sandbox", "pytest") as opened:
        asyncio.run(main(opened))
