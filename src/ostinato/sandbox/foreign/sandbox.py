"""A sandbox of a foreign engine."""

import asyncio
import base64
import builtins
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol

from ostinato.sandbox.base import (
    ExecResult,
    OnOutput,
    Process,
    Sandbox,
    SandboxError,
    Spec,
    Unsupported,
)
from ostinato.sandbox.foreign.client import GRACE_S, GuestClient
from ostinato.sandbox.protocol.entries import unpacked


class ForeignHost(Protocol):
    """The part of a backend that its sandboxes call."""

    name: str

    async def begin(self, spec: Spec, layer: bytes | None) -> "ForeignSandbox": ...

    def knows(self, sandbox: "ForeignSandbox") -> bool: ...

    def forget(self, sandbox: "ForeignSandbox") -> None: ...


class ForeignProcess:
    """A command whose output arrives when it has ended (see `Process`)."""

    def __init__(self, guest: GuestClient, name: str, running: asyncio.Task[ExecResult]) -> None:
        self._guest, self._name, self._running = guest, name, running

    async def output(self) -> AsyncIterator[bytes]:
        result = await self.wait()
        if result.output:
            yield result.output.encode()

    async def send(self, data: bytes) -> None:
        raise SandboxError("the command has no open standard input: use a backend on this machine")

    async def signal(self, number: int) -> None:
        if not self._running.done():
            await self._guest.call("signal", {"id": self._name, "number": number})

    async def wait(self) -> ExecResult:
        return await asyncio.shield(self._running)


class ForeignSandbox:
    """One machine with a repository in it."""

    def __init__(self, backend: ForeignHost, guest: GuestClient, spec: Spec, root: str) -> None:
        self.id, self.root = guest.machine.id, root
        self._backend, self._guest, self._spec = backend, guest, spec
        self._destroyed = False
        self._running: set[asyncio.Task[ExecResult]] = set()

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        process = await self.start(command, timeout_s=timeout_s)
        try:
            result = await process.wait()
        except asyncio.CancelledError:
            with suppress(SandboxError):
                await asyncio.shield(process.signal(signal.SIGKILL))
            raise
        if on_output is not None and result.output:
            on_output(result.output)
        return result

    async def start(self, command: str, *, timeout_s: float | None = None, stdin: bool = False) -> Process:
        if stdin:
            raise Unsupported(self._backend.name, "write to a command's standard input", "ns")
        name = secrets.token_hex(8)
        running = asyncio.create_task(self._exec(name, command, timeout_s))
        self._running.add(running)
        running.add_done_callback(self._ended)
        return ForeignProcess(self._guest, name, running)

    def _ended(self, task: asyncio.Task[ExecResult]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits gets it; nobody has to

    async def _exec(self, name: str, command: str, timeout_s: float | None) -> ExecResult:
        limits = self._spec.limits
        wall_s = limits.wall_s if timeout_s is None else timeout_s
        message = {
            "id": name,
            "command": command,
            "environment": dict(self._spec.environment),
            "limits": asdict(limits),
            "wall_s": wall_s,
        }
        return ExecResult(**await self._call("exec", message, wall_s + GRACE_S))

    async def read(self, path: str) -> bytes:
        data = unpacked(await self._call("read", {"path": path}))
        assert data is not None
        return data

    async def write(self, path: str, data: bytes) -> None:
        await self._call("write", {"path": path, "data": base64.b64encode(data).decode()})

    async def files(self) -> builtins.list[str]:
        return list(await self._call("files", {}))

    async def tree_hash(self) -> str:
        return str(await self._call("digest", {}))

    async def changes(self) -> dict[str, bytes | None]:
        changes = await self._call("changes", {"most": self._spec.limits.disk_mb << 20})
        return {path: unpacked(data) for path, data in changes.items()}

    async def list(self, path: str = ".") -> builtins.list[str]:
        return [*await self._call("names", {"path": path})]

    async def fork(self, n: int = 1) -> builtins.list[Sandbox]:
        """Start `n` more from the repository and all that was written here."""
        layer = await self._pack()
        starts = (self._backend.begin(self._spec, layer) for _ in range(n))
        made = await asyncio.gather(*starts, return_exceptions=True)
        forks: builtins.list[Sandbox] = [each for each in made if isinstance(each, ForeignSandbox)]
        if errors := [each for each in made if isinstance(each, BaseException)]:
            await asyncio.gather(*(each.destroy() for each in forks))
            raise errors[0]
        return forks

    async def _pack(self) -> bytes:
        if self._running:
            raise SandboxError(f"a command runs in sandbox {self.id}: wait for it, or use ns")
        return base64.b64decode(await self._call("pack", {}))

    async def destroy(self) -> None:
        """End the machine. If that fails, the backend tries again at its own end."""
        if self._destroyed and not self._backend.knows(self):
            return
        self._destroyed = True
        for each in tuple(self._running):
            each.cancel()
        await self._guest.machine.end()
        self._backend.forget(self)

    async def _call(self, name: str, message: dict[str, Any], *within_s: float) -> Any:
        if self._destroyed:
            raise SandboxError(f"sandbox {self.id} is destroyed: create another")
        return await self._guest.call(name, message, *within_s)
