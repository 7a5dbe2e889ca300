"""A command in a sandbox that several clients may watch: kept running when nobody does."""

import asyncio
import shlex
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from ostinato.sandbox.base import ExecResult, Process, Sandbox, SandboxError

WATCHER_CHUNKS = 2
"""How far a watcher may fall behind; then the command waits for it."""
KEPT_BYTES = 64 * 1024
"""How much of what it wrote a late watcher still sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What E2B calls a process's configuration.

    >>> Command(cmd="/bin/bash", args=("-c", "echo $A"), envs={"A": "a b"}).line
    "exec env A='a b' /bin/bash -c 'echo $A'"
    """

    cmd: str
    args: tuple[str, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""

    @property
    def line(self) -> str:
        """For `sh -c`; every word is quoted."""
        words = [self.cmd, *self.args]
        if self.envs:
            words = ["env", *(f"{name}={value}" for name, value in self.envs.items()), *words]
        enter = f"cd {shlex.quote(self.cwd)} && " if self.cwd else ""
        return f"{enter}exec {shlex.join(words)}"


class Running:
    """Reads what the command writes, always: a pipe that nobody drains would stop it for good."""

    def __init__(self, pid: int, command: Command, process: Process, tag: str = "") -> None:
        self.pid, self.command, self.tag = pid, command, tag
        self.process = process
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._said_all = False
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(_seen)

    @classmethod
    async def start(
        cls, sandbox: Sandbox, pid: int, command: Command, *, timeout_s: float | None, stdin: bool, tag: str
    ) -> "Running":
        """`timeout_s` None is the sandbox's own limit. Raises SandboxError."""
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
            self._said_all = True  # who comes while the others are told is not waited for
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

    def _silent(self) -> bool:
        return self._said_all or self._reader.done()

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """What it has written lately and all it writes from now on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(WATCHER_CHUNKS)
        before = list(self._kept)
        if not self._silent():
            self._watchers.add(queue)
        try:
            for chunk in before:
                yield chunk
            while not (self._silent() and queue.empty()):
                following = await queue.get()
                if following is None:
                    break
                yield following
        finally:
            self._leave(queue)

    def _leave(self, queue: asyncio.Queue[bytes | None]) -> None:
        """A watcher that goes away must not be waited for."""
        self._watchers.discard(queue)
        while not queue.empty():
            queue.get_nowait()

    async def wait(self) -> ExecResult:
        """Its end. Raises SandboxError when the sandbox went first."""
        await asyncio.wait({self._reader})
        if self._reader.cancelled():
            raise SandboxError(f"the sandbox was ended while {self.command.cmd!r} ran in it")
        return self._reader.result()

    def cancel(self) -> None:
        """The sandbox is gone: nothing more will come."""
        self._reader.cancel()


def _seen(reader: "asyncio.Task[ExecResult]") -> None:
    """A command that nobody waits for may fail without a word: whoever asks later is told."""
    if not reader.cancelled():
        reader.exception()
