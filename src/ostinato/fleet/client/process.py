"""A command in a sandbox on a server."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from ostinato.fleet.client.client import SandboxClient
from ostinato.sandbox.base import ExecResult, Limits
from ostinato.sandbox.protocol.output import OutputTail

INPUT_BYTES = 256 * 1024
"""Bytes of standard input in one call."""


class RemoteProcess:
    """A command whose output arrives over one connection: a slow reader slows the command down."""

    def __init__(
        self,
        client: SandboxClient,
        sandbox: str,
        pid: int,
        events: AsyncGenerator[dict[str, Any], None],
        limits: Limits,
    ) -> None:
        self._client, self._sandbox, self._pid, self._events = client, sandbox, pid, events
        self._tail = OutputTail(limits.output_bytes)
        self._result: Mapping[str, Any] | None = None

    @classmethod
    async def begin(
        cls,
        client: SandboxClient,
        sandbox: str,
        events: AsyncGenerator[dict[str, Any], None],
        limits: Limits,
    ) -> "RemoteProcess":
        """Wait until the command has started. Raises the error if it could not start."""
        first = await anext(events)
        return cls(client, sandbox, int(first["event"]["start"]["pid"]), events, limits)

    async def output(self) -> AsyncIterator[bytes]:
        while self._result is None:
            event = (await anext(self._events))["event"]
            if "data" in event:
                chunk = base64.b64decode(event["data"].get("stdout") or event["data"].get("stderr") or "")
                self._tail.add(chunk)
                yield chunk
            elif "end" in event:
                self._result = event["end"]
                await self._events.aclose()

    async def send(self, data: bytes) -> None:
        if not data:
            await self._rpc("CloseStdin", {})
        for at in range(0, len(data), INPUT_BYTES):
            piece = base64.b64encode(data[at : at + INPUT_BYTES]).decode()
            await self._rpc("SendInput", {"input": {"stdin": piece}})

    async def signal(self, number: int) -> None:
        try:
            await self._rpc("SendSignal", {"number": number})
        except FileNotFoundError:  # it has ended
            return

    async def _rpc(self, method: str, message: Mapping[str, Any]) -> None:
        selected = {"process": {"pid": self._pid}, **message}
        await self._client.rpc(self._sandbox, f"process.Process/{method}", selected)

    async def wait(self) -> ExecResult:
        async for _ in self.output():
            pass
        assert self._result is not None
        result = self._result["result"]
        return ExecResult(
            exit_code=result["exitCode"],
            output=self._tail.text(),
            timed_out=result["timedOut"],
            duration_s=result["durationS"],
        )
