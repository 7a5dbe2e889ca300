"""Holds an exam: gives a judge a worker for each run, reads what it reports.

    runs ──a fresh worker's socket──► judge ──outcomes, done──► runs, again while all passed

Where there are no namespaces judge and worker are plain processes.
"""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from ostinato.sandbox.base import Exam, SandboxError
from ostinato.sandbox.exam import values
from ostinato.sandbox.exam.worker import module_names
from ostinato.sandbox.linux import stray_processes

READY = b"!"
GRACE_S = 5.0
"""How much longer than the exam's wall time a judge may take to say that it is done."""
UNFINISHED = "end of the tests"
"""The id of what should not be there: a judge that was ended, or held up, by an answer of the candidate's."""
Working = Callable[[int], AbstractAsyncContextManager[socket.socket]]
"""The number of a run to its worker, in a fresh copy of the candidate's tree: the socket to ask it by."""


async def runs(results: socket.socket, exam: Exam, working: Working) -> list[dict[str, str]]:
    """The outcomes of each run, see `Backend.examine`; `results` is the judge's socket.

    UNFINISHED is among the last outcomes when the judge ended early: whose failure that is, is the
    candidate's, unless the caller knows better.
    """
    results.setblocking(False)

    async def once(number: int) -> dict[str, str]:
        async with working(number) as asks:
            return await _run(results, exam, asks)

    return await repeated(exam, once)


async def repeated(exam: Exam, once: Callable[[int], Awaitable[dict[str, str]]]) -> list[dict[str, str]]:
    """What `once` answers to the number of each run; one that is not passed is the last."""
    found = [await once(0)]
    while len(found) <= exam.variations and set(found[-1].values()) == {"passed"}:
        found.append(await once(len(found)))
    return found


async def _run(results: socket.socket, exam: Exam, asks: socket.socket) -> dict[str, str]:
    """Hand the judge a worker, collect its reports until it is done.

    Nobody but the judge holds the other end. When it dies or never ends before the candidate has answered
    anything, then that is a failure of ours, and SandboxError is raised. After a first answer it is the
    candidate's: there is no telling what an answer does to a test. This is the watchdog that no answer can
    hold up; the judge itself is ended by its timers.
    """
    with suppress(OSError):  # a judge that is gone is noticed below
        socket.send_fds(results, [READY], [asks.fileno()])
    deadline = time.monotonic() + exam.limits.wall_s + GRACE_S
    found: dict[str, str] = {}
    answered = False
    while True:
        try:
            report = await _frame(results, deadline)
        except SandboxError:
            if not answered:
                raise
            return {**found, UNFINISHED: "error"}
        if "done" in report:
            return found
        if "answered" in report:
            answered = True
        else:
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
        except ConnectionError:  # it was killed before it read all that we told it
            part = b""
        except TimeoutError:
            raise SandboxError("the judge did not finish in time: look at the hidden tests") from None
        if not part:
            raise SandboxError("the judge ended before it was done: the exam is void, run it again")
        data += part
    return data


async def judged_by_process(exam: Exam, working: Working) -> list[dict[str, str]]:
    """`runs` with a judge that is an interpreter of its own."""
    ours, results = socket.socketpair()
    with ours:
        with results:
            told = exam.tests.resolve(), exam.limits.wall_s, *module_names(str(exam.repo))
            judge, mark = _start("judge", results, *told)
        try:
            return await runs(ours, exam, working)
        finally:
            await _end(judge, mark)


@asynccontextmanager
async def worker_process(root: str, variation: int) -> AsyncIterator[socket.socket]:
    """A worker that is an interpreter of its own; the candidate's tree lies ready at `root`."""
    asks, answers = socket.socketpair()
    with asks:
        with answers:
            worker, mark = _start("worker", answers, root, variation)
        try:
            yield asks
        finally:
            await _end(worker, mark)


async def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """And what it started and left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    await asyncio.to_thread(stray_processes.end, process.pid, mark)


def _start(module: str, sock: socket.socket, *arguments: object) -> tuple[subprocess.Popen[bytes], str]:
    """With the mark that all of its descendants carry."""
    mark = stray_processes.new_mark()
    process = subprocess.Popen(
        [sys.executable, "-m", f"ostinato.sandbox.exam.{module}", *map(str, [sock.fileno(), *arguments])],
        cwd="/",
        pass_fds=[sock.fileno()],
        env={
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            stray_processes.MARK: mark,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process, mark
