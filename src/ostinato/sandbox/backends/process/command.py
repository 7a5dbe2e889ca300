"""A command as a plain process of this machine, in a session of its own."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

from ostinato.sandbox.base import ExecResult, SandboxError
from ostinato.sandbox.linux import stray_processes
from ostinato.sandbox.protocol.frames import CHUNK, WINDOW
from ostinato.sandbox.protocol.stream import OutputStream

DRAIN_S = 0.5
"""How long output is awaited after the end of a command, when something still holds the pipe."""


Forget = Callable[["LocalProcess"], None]


class LocalProcess:
    """Use `start`. See `Process`."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, keep: int, forget: Forget) -> None:
        self._forget = forget
        self._process = process
        self._output = output
        self._stream = OutputStream(keep, self._took)
        self._held = 0
        self._ended = False
        self._fed = False
        self._drained = asyncio.Event()
        self._finished: asyncio.Task[ExecResult]

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        directory: str,
        environment: Mapping[str, str],
        wall_s: float,
        stdin: bool,
        keep: int,
        ended: Forget,
        mark: str | None,
    ) -> "LocalProcess":
        """Start `argv`; the last `keep` bytes of its output stay, after `wall_s` its session is killed.

        `ended` is told when it is over; `mark` finds what has left the session (see `strays`).
        """
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        started = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=directory,
                env={**environment, stray_processes.MARK: mark} if mark is not None else environment,
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self = cls(process, read_end, keep, ended)
        self._listen()
        self._finished = asyncio.create_task(self._finish(started, wall_s, mark))
        return self

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._output, self._readable)

    def _readable(self) -> None:
        data = os.read(self._output, CHUNK)
        if not data:
            asyncio.get_running_loop().remove_reader(self._output)
            self._drained.set()
            return
        self._held += len(data)
        self._stream.feed(data)
        if self._held >= WINDOW and not self._ended:
            asyncio.get_running_loop().remove_reader(self._output)

    def _took(self, count: int) -> None:
        before, self._held = self._held, self._held - count
        if before >= WINDOW > self._held and not self._ended:
            self._listen()

    async def _finish(self, started: float, wall_s: float, mark: str | None) -> ExecResult:
        timed_out = await _wait(self._process, wall_s, mark)
        self._ended = True
        if not self._drained.is_set():
            self._listen()  # no more comes than the pipe holds, whether anybody reads or not
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), DRAIN_S)
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stream.end()
        self._forget(self)
        return ExecResult(
            exit_code=self._process.returncode or 0,
            output="",
            timed_out=timed_out,
            duration_s=time.monotonic() - started,
        )

    def output(self) -> AsyncIterator[bytes]:
        return self._stream.read()

    async def send(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None or self._fed:
            raise SandboxError("the command has no open standard input: start it with stdin=True")
        if not data:
            self._fed = True
            stdin.close()
            return
        stdin.write(data)
        with suppress(ConnectionError):
            await stdin.drain()
        if stdin.is_closing():
            raise BrokenPipeError("the command reads its standard input no more")

    async def signal(self, number: int) -> None:
        if not self._ended:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def wait(self) -> ExecResult:
        await self._stream.drain()
        found = await asyncio.shield(self._finished)
        return ExecResult(
            exit_code=found.exit_code,
            output=self._stream.tail.text(),
            timed_out=found.timed_out,
            duration_s=found.duration_s,
        )

    async def kill(self) -> None:
        """End it now, whoever waits."""
        await self.signal(signal.SIGKILL)
        await asyncio.shield(self._finished)


async def _wait(process: asyncio.subprocess.Process, wall_s: float, mark: str | None) -> bool:
    """Wait for the end, or make one after `wall_s` seconds; then end what is left. True when it had to."""
    try:
        await asyncio.wait_for(process.wait(), wall_s)
        return False
    except TimeoutError:
        return True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(stray_processes.end, process.pid, mark)
