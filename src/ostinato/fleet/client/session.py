"""One sandbox, one command, and how long each part of it took: what `ostinato sandbox run` does."""

import time
from typing import BinaryIO

from ostinato.fleet.client.backend import RemoteBackend, RemoteSandbox
from ostinato.fleet.client.client import Client
from ostinato.sandbox.base import Capabilities, ExecResult, Isolation, Spec


class Session:
    """`spent` maps phases to seconds: placed, started, ran, saved."""

    def __init__(self, client: Client, spec: Spec, template: str | None, timeout_s: float) -> None:
        self._backend = RemoteBackend(client, Capabilities(isolation=Isolation.PROCESS))
        self._spec, self._template, self._timeout_s = spec, template, timeout_s
        self.spent: dict[str, float] = {}

    async def start(self) -> RemoteSandbox:
        """Placed is all the time in which nobody was starting it, the way there included."""
        begun = time.monotonic()
        sandbox = await self._backend.start(self._spec, self._template, self._timeout_s)
        whole = time.monotonic() - begun
        self.spent["started"] = min(sandbox.started_s, whole)
        self.spent = {"placed": whole - self.spent["started"], **self.spent}
        return sandbox

    async def run(self, sandbox: RemoteSandbox, command: str, out: BinaryIO) -> ExecResult:
        begun = time.monotonic()
        process = await sandbox.start(command)
        async for chunk in process.output():
            out.write(chunk)
            out.flush()
        result = await process.wait()
        self.spent["ran"] = time.monotonic() - begun
        return result

    async def save(self, sandbox: RemoteSandbox) -> str:
        begun = time.monotonic()
        snapshot = await sandbox.snapshot()
        self.spent["saved"] = time.monotonic() - begun
        return snapshot.id
