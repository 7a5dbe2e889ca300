"""The work of `ostinato sandbox run`: one sandbox, one command, and the time that each phase took."""

import time
from typing import BinaryIO

from ostinato.fleet.client.backend import RemoteBackend, RemoteSandbox
from ostinato.fleet.client.client import SandboxClient
from ostinato.sandbox.base import Capabilities, ExecResult, Isolation, Spec


class TimedRun:
    """A run with its times: `spent` maps the phases placed, started, ran and saved to seconds."""

    def __init__(self, client: SandboxClient, spec: Spec, template: str | None, timeout_s: float) -> None:
        self._backend = RemoteBackend(client, Capabilities(isolation=Isolation.PROCESS))
        self._spec, self._template, self._timeout_s = spec, template, timeout_s
        self.spent: dict[str, float] = {}

    async def start(self) -> RemoteSandbox:
        """Start the sandbox. The phase `placed` is all time but the start itself, network included."""
        start = time.monotonic()
        sandbox = await self._backend.start(self._spec, self._template, self._timeout_s)
        whole = time.monotonic() - start
        self.spent["started"] = min(sandbox.started_s, whole)
        self.spent = {"placed": whole - self.spent["started"], **self.spent}
        return sandbox

    async def run(self, sandbox: RemoteSandbox, command: str, out: BinaryIO) -> ExecResult:
        start = time.monotonic()
        process = await sandbox.start(command)
        async for chunk in process.output():
            out.write(chunk)
            out.flush()
        result = await process.wait()
        self.spent["ran"] = time.monotonic() - start
        return result

    async def save(self, sandbox: RemoteSandbox) -> str:
        start = time.monotonic()
        snapshot = await sandbox.snapshot()
        self.spent["saved"] = time.monotonic() - start
        return snapshot.id
