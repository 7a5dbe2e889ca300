"""A command in a sandbox that is elsewhere."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from ostinato.fleet.client.client import Client
from ostinato.sandbox.base import ExecResult, Limits
from ostinato.sandbox.protocol.output import OutputTail

INPUT_BYTES = 256 * 1024
"""Of standard input in one call."""


class RemoteProcess:
    """A command whose output comes over one connection: not reading it slows the command down."""

    def __init__(
        self,
        client: Client,
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
        client: Client,
        sandbox: str,
        events: AsyncGenerator[dict[str, Any], None],
        limits: Limits,
    ) -> "RemoteProcess":
        """When the command has started. Raises what kept it from that."""
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
        told = self._result["result"]
        return ExecResult(
            exit_code=told["exitCode"],
            output=self._tail.text(),
            timed_out=told["timedOut"],
            duration_s=told["durationS"],
        )
