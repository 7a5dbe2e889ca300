"""A command that runs as a plain process of this machine, in a session of its own."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ostinato.sandbox.base import ExecResult, Limits, SandboxError
from ostinato.sandbox.linux import stray_processes
from ostinato.sandbox.protocol.frames import CHUNK, WINDOW
from ostinato.sandbox.protocol.stream import OutputStream

DRAIN_S = 0.5
"""The seconds to wait for output after the end of a command, if another process has the pipe open."""


OnEnd = Callable[["LocalProcess"], None]


class LocalProcess:
    """A running command (see `Process`); use `start` to make one."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, keep: int, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._process = process
        self._output = output
        self._stream = OutputStream(keep, self._on_taken)
        self._unread = 0
        """Bytes of output that the reader has not taken."""
        self._ended = False
        self._input_closed = False
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
        on_end: OnEnd,
        mark: str | None,
    ) -> "LocalProcess":
        """Start `argv`; keep the last `keep` bytes of its output, and kill its session after `wall_s`.

        `on_end` is called at its end. By `mark` processes are found that left the session (see
        `linux.stray_processes`).
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
        self = cls(process, read_end, keep, on_end)
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
        self._unread += len(data)
        self._stream.feed(data)
        if self._unread >= WINDOW and not self._ended:
            asyncio.get_running_loop().remove_reader(self._output)

    def _on_taken(self, count: int) -> None:
        before, self._unread = self._unread, self._unread - count
        if before >= WINDOW > self._unread and not self._ended:
            self._listen()

    async def _finish(self, started: float, wall_s: float, mark: str | None) -> ExecResult:
        timed_out = await _wait(self._process, wall_s, mark)
        self._ended = True
        if not self._drained.is_set():
            self._listen()  # even without a reader: no more comes than the pipe holds
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), DRAIN_S)
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stream.end()
        self._on_end(self)
        return ExecResult(
            exit_code=self._process.returncode or 0,
            output="",
            timed_out=timed_out,
            duration_s=time.monotonic() - started,
        )

    @property
    def pid(self) -> int:
        """Its process group, too."""
        return self._process.pid

    def output(self) -> AsyncIterator[bytes]:
        return self._stream.read()

    async def send(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None or self._input_closed:
            raise SandboxError("the command has no open standard input: start it with stdin=True")
        if not data:
            self._input_closed = True
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
        return replace(await asyncio.shield(self._finished), output=self._stream.tail.text())

    async def kill(self) -> None:
        """End the command now, even while a caller waits for it."""
        await self.signal(signal.SIGKILL)
        await asyncio.shield(self._finished)


def capped(command: str, limits: Limits) -> list[str]:
    """Return the arguments that run `command` with `sh -c` under the limits of one process."""
    most = f"ulimit -t {limits.cpu_s}; ulimit -f {limits.disk_mb * 2048}; "
    if sys.platform == "linux":
        most += f"ulimit -v {limits.memory_mb * 1024}; "
    return ["/bin/sh", "-c", most + 'exec /bin/sh -c "$0"', command]


async def _wait(process: asyncio.subprocess.Process, wall_s: float, mark: str | None) -> bool:
    """Wait for the end, or kill the session after `wall_s` seconds; then end all stray processes.

    Return True when the time was up.
    """
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
