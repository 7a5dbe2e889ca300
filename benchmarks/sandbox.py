"""The cost of sandboxes of every usable backend, beside bubblewrap, `runsc do` and SWE-ReX, in one run.

    python -m benchmarks.sandbox [--backends ns,podman] [--peers bubblewrap] [--rounds 100] [--live 500]
                                 [--patience 12] [--json]

There is one key for each backend and peer; a figure is null where it does not apply:

    start_p50_ms, start_p99_ms   from the call to a sandbox that takes commands; for a peer, `true`
    fork_p50_ms                  from the call to one more that takes commands, after eight files were written
    fork_answer_ms               the same, to the first response of the fork: the content of a file
    fork_exec_ms                 the same, to the end of a command in the fork
    envs_per_s, cpu_ms_each      created and destroyed, four at a time, and the CPU of all processes involved
    mb_each, live_500_s          memory of the machine per sandbox of 500 at once, the time to create them;
                                 for a slow starter, its own figure after one command
    egress_start_ms              start_p50_ms of a sandbox that may reach one host
    egress_mb_s                  the rate at which a program in it receives from there through its proxy, MB/s
    step_ratio                   `python -m pytest` in a sandbox over the same in a bare directory
    step_warm_ratio              the same, where the sandbox may run it without starting Python

A figure that cannot be measured here is null, with the reason in `missing`; `intervals` has [low, high, n] of
each median. Steps inside and outside take turns, so that a change of load affects both; their ratio is the
median over the turns.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Cpu, Figure, Run, quantile, table
from benchmarks.sandbox_peers import BWRAP, RUNSC, Row, command_peer, starts, swerex_peer
from benchmarks.verify import CALC, make_task
from ostinato.sandbox import Backend, Sandbox, SandboxError, Spec, Unsupported
from ostinato.sandbox.base import Egress
from ostinato.sandbox.choose import KINDS, probe
from ostinato.sandbox.exam.verifier import Verifier

KEYS = (
    *("start_p50_ms", "start_p99_ms", "fork_p50_ms", "fork_answer_ms", "fork_exec_ms"),
    *("envs_per_s", "cpu_ms_each", "mb_each", "live_500_s"),
    *("egress_start_ms", "egress_mb_s"),
    *("step_ratio", "step_warm_ratio", "verdict_p50_ms", "verdicts_per_s"),
)
PEERS = ("bubblewrap", "runsc do", "swe-rex local")
FEW = 30
"""The milliseconds of a start above which 500 are not started at once."""
SENT = 32 << 20
TAKE = """
import socket
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"GET http://localhost:%d/ HTTP/1.1\\r\\n\\r\\n")
place, left = bytearray(1 << 18), 0
while count := s.recv_into(place): left += count
assert left > %d
"""
FRESH = "python -m pytest -q; true"
Call = Callable[[], Awaitable[object]]


async def timed(call: Call) -> float:
    """Return the milliseconds of a call."""
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1e3


class BackendBenchmark:
    """The measurement of all figures of one backend."""

    def __init__(self, backend: Backend, folder: Path, options: argparse.Namespace, cpu: Cpu) -> None:
        self._backend = backend
        self._task = make_task(folder)
        self._spec = Spec(repo=self._task.repo)
        self._rounds: int = options.rounds
        self._live: int = options.live
        self._patience_s: float = options.patience
        self._cpu = cpu
        self.row: Row = {}

    async def run(self) -> Row:
        await self._start()
        await self._throughput()
        for measure in (self._fork, self._let_out, self._step, self._verdict):
            try:
                await measure()
            except Unsupported:
                continue
        await (self._many() if self.row["start_p50_ms"].value < FEW else self._few())
        return self.row

    async def _repeat(self, once: Callable[[], Awaitable[float]]) -> list[float]:
        """Return the results of `once`, for all rounds or as long as the patience lasts, at least two."""
        end, results = time.monotonic() + self._patience_s, [await once() for _ in range(3)]
        while len(results) <= self._rounds and time.monotonic() < end:
            results.append(await once())
        return results[1:]  # the first warms up

    async def _start(self) -> None:
        self.row |= starts(await self._repeat(partial(self._start_once, self._spec)))

    async def _start_once(self, spec: Spec) -> float:
        start = time.perf_counter()
        sandbox = await self._backend.create(spec)
        took = (time.perf_counter() - start) * 1e3
        await sandbox.destroy()
        await asyncio.sleep(max(0.02, took / 1e3))  # one at a time: `envs_per_s` measures bursts
        return took

    async def _throughput(self) -> None:
        count, end = 0, time.monotonic() + min(3.0, self._patience_s)

        async def churn() -> None:
            nonlocal count
            while time.monotonic() < end:
                await (await self._backend.create(self._spec)).destroy()
                count += 1

        start, spent = time.monotonic(), self._cpu.seconds()
        await asyncio.gather(*(churn() for _ in range(4)))
        self.row["envs_per_s"] = quantile([count / (time.monotonic() - start)])
        self.row["cpu_ms_each"] = quantile([(self._cpu.seconds() - spent) * 1e3 / count])

    async def _fork(self) -> None:
        if not self._backend.capabilities.fork:
            return
        sandbox = await self._written()
        answers: list[float] = []
        ran: list[float] = []

        async def once() -> float:
            start = time.perf_counter()
            (fork,) = await sandbox.fork()
            took = (time.perf_counter() - start) * 1e3
            await fork.read("f1")
            answers.append((time.perf_counter() - start) * 1e3)
            await fork.exec("cat f1")
            ran.append((time.perf_counter() - start) * 1e3)
            await fork.destroy()
            await asyncio.sleep(max(0.02, took / 1e3))
            return took

        self.row["fork_p50_ms"] = quantile(await self._repeat(once))
        self.row |= {"fork_answer_ms": quantile(answers[1:]), "fork_exec_ms": quantile(ran[1:])}
        await sandbox.destroy()

    async def _written(self) -> Sandbox:
        sandbox = await self._backend.create(self._spec)
        await sandbox.exec("for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; done; rm test_calc.py")
        return sandbox

    async def _let_out(self) -> None:
        if not self._backend.capabilities.egress:
            return
        rates: list[float] = []

        async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            start = time.perf_counter()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SENT + bytes(SENT))
            await reader.read()  # the proxy closes when the program has read all but the content of the pipes
            rates.append(SENT / 1e6 / (time.perf_counter() - start))
            writer.close()

        server = await asyncio.start_server(pour, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        networks = ("127.0.0.0/8", "::1/128")
        spec = replace(self._spec, egress=Egress(allow=(f"localhost:{port}",), networks=networks))
        self.row["egress_start_ms"] = quantile(await self._repeat(partial(self._start_once, spec)))
        async with server:
            sandbox = await self._backend.create(spec)
            await sandbox.write("take.py", (TAKE % (port, SENT)).encode())

            async def once() -> float:
                result = await sandbox.exec("python take.py")
                assert result.exit_code == 0, result.output
                return rates[-1]

            self.row["egress_mb_s"] = quantile(await self._repeat(once))
            await sandbox.destroy()

    async def _step(self) -> None:
        bare = Path(shutil.copytree(self._task.repo, self._task.repo.with_name("bare")))
        (bare / "calc.py").write_text(CALC.format("+"))
        sandbox = await self._backend.create(self._spec)
        await sandbox.write("calc.py", CALC.format("+").encode())
        outside = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        outside["PATH"] = f"{Path(sys.executable).parent}:{outside['PATH']}"
        fresh, warm, end = [], [], time.monotonic() + self._patience_s
        for turn in range(max(self._rounds // 5, 6)):
            if turn > 1 and time.monotonic() > end:
                break
            await sandbox.write("stamp", b"%d" % turn)
            inside = await timed(lambda: sandbox.exec(FRESH))
            await sandbox.write("stamp", b"%d!" % turn)
            short = await timed(lambda: sandbox.exec("python -m pytest -q"))
            outside_ms = await timed(lambda: shell(FRESH, bare, outside))
            fresh.append(inside / outside_ms)
            warm.append(short / outside_ms)
        self.row |= {"step_ratio": quantile(fresh), "step_warm_ratio": quantile(warm)}
        await sandbox.destroy()
        await asyncio.to_thread(shutil.rmtree, bare)

    async def _verdict(self) -> None:
        verifier, good = Verifier(self._backend), {"calc.py": CALC.format("+").encode()}
        first = await verifier.verify(self._task, good)
        assert first.passed, first

        async def once() -> float:
            return await timed(lambda: verifier.verify(self._task, good))

        self.row["verdict_p50_ms"] = quantile(await self._repeat(once))
        start = time.perf_counter()
        many = max(8, min(self._rounds, int(4000 / self.row["verdict_p50_ms"].value)))
        await asyncio.gather(*(verifier.verify(self._task, good) for _ in range(many)))
        self.row["verdicts_per_s"] = quantile([many / (time.perf_counter() - start)])

    async def _many(self) -> None:
        before, start = available_mb(), time.perf_counter()
        made = await asyncio.gather(*(self._backend.create(self._spec) for _ in range(self._live)))
        self.row["live_500_s"] = quantile([(time.perf_counter() - start) * 500 / self._live])
        await asyncio.sleep(0.5)
        self.row["mb_each"] = quantile([max(before - available_mb(), 0) / self._live])
        await asyncio.gather(*(sandbox.destroy() for sandbox in made))

    async def _few(self) -> None:
        before = available_mb()
        made = [await self._backend.create(self._spec) for _ in range(4)]
        for sandbox in made:
            await sandbox.exec("true")
        self.row["mb_each"] = quantile([max(before - available_mb(), 0) / len(made)])
        for sandbox in made:
            await sandbox.destroy()


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


async def measured(name: str, options: argparse.Namespace, cpu: Cpu) -> Row:
    backend = await probe(KINDS[name])
    with tempfile.TemporaryDirectory() as folder:
        try:
            return await BackendBenchmark(backend, Path(folder, "task"), options, cpu).run()
        finally:
            await backend.aclose()


async def main(run: Run) -> None:
    options = arguments()
    rows: dict[str, Row | None] = {}
    missing: dict[str, str] = {}
    for name, trial in trials(options, run.cpu).items():
        try:
            rows[name] = await trial()
        except SandboxError as error:
            rows[name], missing[name] = None, str(error)
    show(rows, missing)
    run.finish({**as_json(rows), "missing": missing}, as_json=options.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", default=",".join(KINDS), help="any of " + ", ".join(KINDS))
    parser.add_argument("--peers", default=",".join(PEERS), help="any of " + ", ".join(PEERS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--live", type=int, default=500)
    parser.add_argument("--patience", type=float, default=12.0, help="seconds for each figure, about")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    return parser.parse_args()


def trials(options: argparse.Namespace, cpu: Cpu) -> dict[str, Callable[[], Awaitable[Row]]]:
    """Return the requested trials by name."""
    rounds, patience_s = options.rounds, options.patience
    peers: dict[str, Callable[[], Awaitable[Row]]] = {
        PEERS[0]: lambda: command_peer(BWRAP, rounds, patience_s, cpu),
        PEERS[1]: lambda: command_peer(RUNSC, rounds, patience_s, cpu),
        PEERS[2]: lambda: swerex_peer(rounds, patience_s),
    }
    backends = [name for name in options.backends.split(",") if name]
    wanted: dict[str, Callable[[], Awaitable[Row]]] = {
        name: partial(measured, name, options, cpu) for name in backends
    }
    return wanted | {f"peer: {name}": peers[name] for name in options.peers.split(",") if name}


def as_json(measured_rows: dict[str, Row | None]) -> dict[str, Any]:
    rows = {
        name: None if row is None else {key: value(row.get(key)) for key in KEYS}
        for name, row in measured_rows.items()
    }
    intervals = {
        name: {key: [round(each.low, 3), round(each.high, 3), each.n] for key, each in (row or {}).items()}
        for name, row in measured_rows.items()
    }
    return {"backends": rows, "intervals": intervals}


def value(figure: Figure | None) -> float | None:
    return None if figure is None else round(figure.value, 3)


def show(all_rows: dict[str, Row | None], missing: dict[str, str]) -> None:
    rows = {name: row for name, row in all_rows.items() if row is not None}
    lines = [
        [key, *(f"{row[key].value:,.2f}" if key in row else "" for row in rows.values())] for key in KEYS
    ]
    table(["", *rows], lines)
    for name, why in missing.items():
        print(f"{name}: not measured: {why}")


if __name__ == "__main__":
    with Run("sandbox", "pytest") as opened:
        asyncio.run(main(opened))
