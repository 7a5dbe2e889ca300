"""The host of an exam: it hands the judge a worker for each run and reads the judge's reports.

    runs ──a fresh worker's socket──► judge ──outcomes, done──► runs, again while all passed

Without namespaces judge and worker are plain processes.
"""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from ostinato.sandbox.base import Exam, SandboxError
from ostinato.sandbox.exam.judged import values
from ostinato.sandbox.exam.judged.worker import module_names
from ostinato.sandbox.exam.variations import GRACE_S, run_variations
from ostinato.sandbox.linux import stray_processes

READY = b"!"
UNFINISHED = "end of the tests"
"""The id of an extra outcome, which fails the exam: a response of the candidate stopped the judge."""
WorkerFactory = Callable[[int], AbstractAsyncContextManager[socket.socket]]
"""A function from the number of a run to the socket of its worker, which has a fresh copy of the tree."""


async def runs(results: socket.socket, exam: Exam, new_worker: WorkerFactory) -> list[dict[str, str]]:
    """Return the outcomes of each run, see `Backend.examine`; `results` is the judge's socket.

    UNFINISHED is among the last outcomes when the judge ended early. That counts as the candidate's failure,
    unless the caller knows otherwise.
    """
    results.setblocking(False)

    async def run_once(number: int) -> dict[str, str]:
        async with new_worker(number) as questions:
            return await _run(results, exam, questions)

    return await run_variations(exam, run_once)


async def _run(results: socket.socket, exam: Exam, questions: socket.socket) -> dict[str, str]:
    """Hand the judge a worker and collect its reports until it is done.

    Only the judge holds the other end. If it dies or never ends before the candidate's first response, the
    machinery has failed, and SandboxError is raised. After the first response the candidate has failed,
    because a response may do anything to a test. No response can delay this deadline; the judge has timers of
    its own too.
    """
    with suppress(OSError):  # a judge that is gone is noticed below
        socket.send_fds(results, [READY], [questions.fileno()])
    deadline = time.monotonic() + exam.limits.wall_s + GRACE_S
    outcomes: dict[str, str] = {}
    responded = False
    while True:
        try:
            report = await _frame(results, deadline)
        except SandboxError:
            if not responded:
                raise
            return {**outcomes, UNFINISHED: "error"}
        if "done" in report:
            return outcomes
        if "answered" in report:
            responded = True
        else:
            outcomes[report["id"]] = report["outcome"]


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
        except ConnectionError:  # the judge was killed before it read all that was sent
            part = b""
        except TimeoutError:
            raise SandboxError("the judge did not finish in time: look at the hidden tests") from None
        if not part:
            raise SandboxError("the judge ended before it was done: the exam is void, run it again")
        data += part
    return data


async def judged_by_process(exam: Exam, new_worker: WorkerFactory) -> list[dict[str, str]]:
    """Hold an exam with a judge in its own process; see `runs`."""
    ours, results = socket.socketpair()
    with ours:
        with results:
            arguments = exam.tests.resolve(), exam.limits.wall_s, *module_names(str(exam.repo))
            judge, mark = _start("judge", results, *arguments)
        try:
            return await runs(ours, exam, new_worker)
        finally:
            await _end(judge, mark)


@asynccontextmanager
async def worker_process(root: str, variation: int) -> AsyncIterator[socket.socket]:
    """Run a worker in its own process on the candidate's tree at `root`; yield its socket."""
    questions, responses = socket.socketpair()
    with questions:
        with responses:
            worker, mark = _start("worker", responses, root, variation)
        try:
            yield questions
        finally:
            await _end(worker, mark)


async def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    await asyncio.to_thread(stray_processes.end, process.pid, mark)


def _start(module: str, sock: socket.socket, *arguments: object) -> tuple[subprocess.Popen[bytes], str]:
    """Start a process; return it with the mark that all of its descendants carry."""
    mark = stray_processes.new_mark()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            f"ostinato.sandbox.exam.judged.{module}",
            *map(str, [sock.fileno(), *arguments]),
        ],
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
