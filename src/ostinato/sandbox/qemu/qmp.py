"""A client of QEMU's machine protocol: one JSON object a line, one command at a time."""

import asyncio
import json
import socket
from typing import Any

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.wire import LostError

ANSWER_S = 30.0


class Monitor:
    """The connection to one QEMU."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()
        self._events: list[dict[str, Any]] = []

    @classmethod
    async def open(cls, sock: socket.socket) -> "Monitor":
        """Wait for the greeting on a connected socket and end the negotiation; raises SandboxError."""
        monitor = cls(*await asyncio.open_connection(sock=sock))
        await monitor._message()
        await monitor.command("qmp_capabilities")
        return monitor

    async def command(self, name: str, **arguments: object) -> Any:
        """What it returns; raises SandboxError when it fails, or QEMU is gone."""
        request = {"execute": name, "arguments": arguments} if arguments else {"execute": name}
        async with self._turn:
            self._writer.write(json.dumps(request).encode() + b"\n")
            while True:
                answer = await self._message()
                if "error" in answer:
                    raise SandboxError(f"QEMU refused {name}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
                self._events.append(answer)

    async def migrated(self) -> None:
        """Wait until a machine that is being loaded has been; raises SandboxError."""
        async with self._turn:
            while True:
                event = self._events.pop(0) if self._events else await self._message()
                status = event.get("data", {}).get("status") if event.get("event") == "MIGRATION" else None
                if status == "completed":
                    return
                if status == "failed":
                    raise SandboxError("QEMU could not load the machine: it is damaged, or of another QEMU")

    async def _message(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await self._reader.readline()
        except TimeoutError:
            raise SandboxError(f"QEMU did not answer within {ANSWER_S:.0f} s") from None
        except ConnectionError as error:
            raise LostError(f"QEMU is gone: {error}") from error
        if not line:
            raise LostError("QEMU is gone")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self._writer.close()
