"""Reads what a judge reports, and runs judge and worker as plain processes where there are no namespaces."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress

from ostinato.sandbox import values
from ostinato.sandbox.base import Exam, SandboxError
from ostinato.sandbox.worker import module_names

READY = b"!"
GRACE_S = 5.0
"""How much longer than the exam's wall time a judge may take to say that it is done."""


async def outcomes(results: socket.socket, exam: Exam) -> dict[str, str]:
    """Tell the judge that the worker is ready, collect its reports until it is done.

    Raises SandboxError when it dies before, or never ends.
    Nobody but the judge holds the other end, so an end without `done` is a failure of ours.
    """
    results.setblocking(False)
    with suppress(OSError):  # a judge that is gone is noticed below
        results.send(READY)
    deadline = time.monotonic() + exam.limits.wall_s + GRACE_S
    found: dict[str, str] = {}
    while True:
        report = await _frame(results, deadline)
        if "done" in report:
            return found
        found[report["id"]] = report["outcome"]


async def _frame(results: socket.socket, deadline: float) -> dict[str, str]:
    (length,) = struct.unpack(">I", await _exactly(results, 4, deadline))
    report = values.decode((await _exactly(results, length, deadline)).decode())
    assert isinstance(report, dict)
    return report


async def _exactly(results: socket.socket, count: int, deadline: float) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < count:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                part = await loop.sock_recv(results, count - len(data))
        except TimeoutError:
            raise SandboxError("the judge did not finish in time: look at the hidden tests") from None
        if not part:
            raise SandboxError("the judge ended before it was done: the exam is void, run it again")
        data += part
    return data


async def examine_in_processes(exam: Exam, root: str) -> dict[str, str]:
    """Judge and worker as two interpreters; the candidate's tree lies ready at `root`."""
    asks, answers = socket.socketpair()
    with asks, answers:
        worker = _start("worker", [answers], root, exam.variation)
        answers.close()
        try:
            return await judge_in_process(exam, asks)
        finally:
            await _end(worker)


async def judge_in_process(exam: Exam, asks: socket.socket) -> dict[str, str]:
    """The judge as an interpreter of its own, which asks a worker through `asks`; closes it."""
    ours, results = socket.socketpair()
    with ours:
        with results, asks:
            told = exam.tests.resolve(), exam.limits.wall_s, exam.variation
            judge = _start("judge", [results, asks], *told, *module_names(str(exam.repo)))
        try:
            return await outcomes(ours, exam)
        finally:
            await _end(judge)


async def _end(process: subprocess.Popen[bytes]) -> None:
    """And what it started and left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait)


def _start(module: str, sockets: list[socket.socket], *arguments: object) -> subprocess.Popen[bytes]:
    numbers = [sock.fileno() for sock in sockets]
    return subprocess.Popen(
        [sys.executable, "-m", f"ostinato.sandbox.{module}", *map(str, [*numbers, *arguments])],
        cwd="/",
        pass_fds=numbers,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
