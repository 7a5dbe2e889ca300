"""A command in a sandbox that several clients may watch. It keeps running when no client does."""

import asyncio
import shlex
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from ostinato.sandbox.base import ExecResult, Process, Sandbox, SandboxError

WATCHER_CHUNKS = 2
"""Chunks by which a watcher may fall behind; then the command waits for it."""
KEPT_BYTES = 64 * 1024
"""Bytes of earlier output that a late watcher still gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as E2B's `ProcessConfig` describes it.

    >>> Command(cmd="/bin/bash", args=("-c", "echo $A"), envs={"A": "a b"}).line
    "exec env 'A=a b' /bin/bash -c 'echo $A'"
    """

    cmd: str
    args: tuple[str, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""

    @property
    def line(self) -> str:
        """The command as a line for `sh -c`; every word is quoted."""
        words = [self.cmd, *self.args]
        if self.envs:
            words = ["env", *(f"{name}={value}" for name, value in self.envs.items()), *words]
        enter = f"cd {shlex.quote(self.cwd)} && " if self.cwd else ""
        return f"{enter}exec {shlex.join(words)}"


class RunningCommand:
    """A command that runs. Its output is always read: a pipe that is not drained would stop it for good."""

    def __init__(self, pid: int, command: Command, process: Process, tag: str = "") -> None:
        self.pid, self.command, self.tag = pid, command, tag
        self.process = process
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._output_ended = False
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(_retrieve_exception)

    @classmethod
    async def start(
        cls, sandbox: Sandbox, pid: int, command: Command, *, timeout_s: float | None, stdin: bool, tag: str
    ) -> "RunningCommand":
        """Start a command. A `timeout_s` of None means the sandbox's own limit. Raises SandboxError."""
        process = await sandbox.start(command.line, timeout_s=timeout_s, stdin=stdin)
        return cls(pid, command, process, tag)

    async def _read(self) -> ExecResult:
        try:
            async for chunk in self.process.output():
                self._keep(chunk)
                for watcher in tuple(self._watchers):
                    await watcher.put(chunk)
            return await self.process.wait()
        finally:
            self._output_ended = True  # a watcher that comes while the others are notified must not wait
            for watcher in tuple(self._watchers):
                await watcher.put(None)

    def _keep(self, chunk: bytes) -> None:
        self._kept.append(chunk)
        self._kept_bytes += len(chunk)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popleft())

    @property
    def ended(self) -> bool:
        return self._reader.done()

    def _is_silent(self) -> bool:
        return self._output_ended or self._reader.done()

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yield the command's latest output and all output from now on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(WATCHER_CHUNKS)
        before = list(self._kept)
        if not self._is_silent():
            self._watchers.add(queue)
        try:
            for chunk in before:
                yield chunk
            while not (self._is_silent() and queue.empty()):
                following = await queue.get()
                if following is None:
                    break
                yield following
        finally:
            self._leave(queue)

    def _leave(self, queue: asyncio.Queue[bytes | None]) -> None:
        """Remove a watcher that went away, so that the command does not wait for it."""
        self._watchers.discard(queue)
        while not queue.empty():
            queue.get_nowait()

    async def wait(self) -> ExecResult:
        """Wait until the command ends. Raises SandboxError when the sandbox ended first."""
        await asyncio.wait({self._reader})
        if self._reader.cancelled():
            raise SandboxError(f"the sandbox was ended while {self.command.cmd!r} ran in it")
        return self._reader.result()

    def cancel(self) -> None:
        """Stop reading, because the sandbox is gone."""
        self._reader.cancel()


def _retrieve_exception(reader: "asyncio.Task[ExecResult]") -> None:
    """Mark the exception as retrieved, so that asyncio does not log it; `wait` raises it later."""
    if not reader.cancelled():
        reader.exception()
