"""Thousands of sandboxes, created, used, killed at random and destroyed: does anything leak?

    python -m benchmarks.soak [--cycles 10000] [--backend ns|…] [--at-once 4] [--seed 1] [--json]

Each cycle draws the fate of its sandbox: used and destroyed, abandoned in the middle of a command, forked,
examined, its processes killed from outside, or the zygote under all of them killed.
Every call must return or raise SandboxError. In the end the backend is closed, and everything that did not
exist before counts as a leak: processes (orphans are adopted here), mounts, control groups, network
namespaces, files in the temporary directory, open files.
"""

import argparse
import asyncio
import os
import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.measure import Run, table
from benchmarks.verify import CALC, make_task
from ostinato.sandbox import Backend, Limits, Sandbox, SandboxError, Spec
from ostinato.sandbox.base import Egress
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.sandbox.linux import cgroup, syscalls
from ostinato.types import Task

LIMITS = Limits(wall_s=20.0)
PATIENCE_S = 120.0
"""The seconds after which a cycle counts as hung."""
SETTLE_S = 15.0
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The exit codes of a command whose shell, or a child of it, another cycle killed."""
_KNOCK = 'import socket; socket.create_connection(("127.0.0.1", 3128), 5).sendall(b"GET http://x.test/")'


class Soak:
    """The cycles, and the counts of what happened in them."""

    def __init__(self, backend: Backend, task: Task, seed: int) -> None:
        self._backend = backend
        self._task = task
        self._random = random.Random(seed)
        self._verifier = Verifier(backend, LIMITS)
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "used": (60, self._use),
            "abandoned": (10, self._abandon),
            "killed": (10, self._kill),
            "forked": (6, self._fork),
            "examined": (6, self._examine),
            "with egress": (3, self._let_out),
            "zygote killed": (1, self._kill_zygote),
        }

    async def cycle(self) -> None:
        """Run one sandbox through its fate; an error about a killed one is counted, any other is raised."""
        weights = [weight for weight, _ in self._kinds.values()]
        (kind,) = self._random.choices(list(self._kinds), weights)
        self.counts[kind] += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._kinds[kind][1]()
        except SandboxError:
            self.counts["ended in SandboxError"] += 1  # another cycle killed the processes under this one
        except TimeoutError:
            self.counts["hung"] += 1
            traceback.print_exc()

    async def _open(self, egress: Egress | None = None) -> Sandbox:
        return await self._backend.create(Spec(repo=self._task.repo, limits=LIMITS, egress=egress))

    async def _use(self) -> None:
        sandbox = await self._open()
        try:
            await sandbox.write("new.py", b"x = 1\n")
            result = await sandbox.exec("cat new.py; (sleep 100 &)")
            assert result.output == "x = 1\n" or result.exit_code in KILLED, result
        finally:
            await sandbox.destroy()

    async def _abandon(self) -> None:
        sandbox = await self._open()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(sandbox.exec("sleep 100"), 0.02)
        finally:
            await sandbox.destroy()

    async def _kill(self) -> None:
        sandbox = await self._open()
        try:
            running = asyncio.create_task(sandbox.exec("sleep 0.05"))
            victims = sorted(descendants(os.getpid()))[2:]  # the first two belong to the zygote
            if victims:
                _kill(self._random.choice(victims))
            await running
        finally:
            await sandbox.destroy()

    async def _kill_zygote(self) -> None:
        sandbox = await self._open()
        try:
            _kill(self._random.choice(sorted(descendants(os.getpid()))[:2]))
            await sandbox.exec("true")
        finally:
            await sandbox.destroy()

    async def _fork(self) -> None:
        sandbox = await self._open()
        try:
            await sandbox.write("new.py", b"x = 1\n")
            for fork in await sandbox.fork(2):
                try:
                    assert await fork.read("new.py") == b"x = 1\n"
                finally:
                    await fork.destroy()
        finally:
            await sandbox.destroy()

    async def _examine(self) -> None:
        verification = await self._verifier.verify(self._task, {"calc.py": CALC.format("+").encode()})
        if not verification.passed:  # a worker killed from outside seems to have ended by itself
            self.counts["examined: void" if verification.void is not None else "examined: not passed"] += 1

    async def _let_out(self) -> None:
        sandbox = await self._open(Egress(allow=("nowhere.invalid:80",)))
        try:
            await sandbox.exec(f"python -c '{_KNOCK}'")
        finally:
            await sandbox.destroy()


def descendants(root: int) -> set[int]:
    """Return the processes below `root`."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = {root}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return family - {root}


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def resources(temporary: Path) -> dict[str, int]:
    """Return the number of things of each kind that can leak."""
    mine = descendants(os.getpid())
    own = Path("/proc/self/ns/net").stat().st_ino
    networks = set()
    for pid in mine:
        with suppress(OSError):
            networks.add(Path(f"/proc/{pid}/ns/net").stat().st_ino)
    return {
        "processes": len(mine),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "cgroups": sum("ostinato" in path.name for path in _groups().glob("**")),
        "networks": len(networks - {own}),
        "files": sum(1 for _ in temporary.rglob("*")),
        "open files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


def _groups() -> Path:
    """Return the folder of control groups of this process and its children."""
    group = cgroup.usable()
    return group[1] if group is not None else Path("/sys/fs/cgroup")


def _reap() -> None:
    """Reap adopted orphans."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


async def settled(before: dict[str, int], temporary: Path) -> dict[str, int]:
    """Return what there is more of than before, once the kernel has had time to clean up."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        _reap()
        now = resources(temporary)
        leaks = {name: now[name] - before[name] for name in now if now[name] > before[name]}
        if not leaks or time.monotonic() > deadline:
            return leaks
        await asyncio.sleep(0.2)


async def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--backend", default="ns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    syscalls.adopt_orphans()
    with tempfile.TemporaryDirectory() as directory:
        task = make_task(Path(directory, "task"))
        temporary = Path(tempfile.mkdtemp(dir=directory))
        tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
        await asyncio.to_thread(time.sleep, 0)  # the loop's own threads and files are not leaks
        before, start = resources(temporary), time.monotonic()
        backend = await choose_backend(options.backend)
        soak = Soak(backend, task, options.seed)
        remaining = iter(range(options.cycles))
        await asyncio.gather(*(_drive(soak, remaining) for _ in range(options.at_once)))
        await backend.aclose()
        leaks = await settled(before, temporary)
        tempfile.tempdir = None
    rows = [[name, str(count)] for name, count in sorted(soak.counts.items())]
    table(
        [backend.name, "count"], [*rows, *([f"LEAKED {name}", str(count)] for name, count in leaks.items())]
    )
    figures = {
        "backend": backend.name,
        "cycles": options.cycles,
        "leaks": sum(leaks.values()) + soak.counts["hung"],
        "leaked": leaks,
        "seen": dict(soak.counts),
        "seconds": round(time.monotonic() - start, 1),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    run.finish(figures, as_json=options.json)


async def _drive(soak: Soak, cycles: Iterator[int]) -> None:
    for _ in cycles:
        await soak.cycle()


if __name__ == "__main__":
    with Run("soak") as opened:
        asyncio.run(main(opened))
