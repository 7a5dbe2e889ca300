"""A client of QEMU's machine protocol: one JSON object a line, one command at a time."""

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.protocol.connection import ConnectionLostError

ANSWER_S = 30.0


def greet(sock: socket.socket) -> None:
    """Wait, blocking, for QEMU's greeting, and end the negotiation; QEMU has mapped its memory by then.

    Raises ConnectionLostError, SandboxError.
    """
    with suppress(ConnectionError):  # `wait_for` raises it
        sock.sendall(b'{"execute":"qmp_capabilities"}\n')
    wait_for(sock, b'"return"')


def wait_for(sock: socket.socket, word: bytes) -> None:
    """Wait, blocking, for the end of a line with this word; raises ConnectionLostError, SandboxError."""
    sock.settimeout(ANSWER_S)
    said = b""
    try:
        while word not in said or not said.endswith(b"\n"):
            data = sock.recv(4096)
            if not data:
                raise ConnectionLostError("QEMU is gone")
            said += data
    except TimeoutError:
        raise SandboxError(f"QEMU did not answer within {ANSWER_S:.0f} s") from None
    except ConnectionError as error:
        raise ConnectionLostError(f"QEMU is gone: {error}") from error


class QmpMonitor:
    """The connection to one QEMU, behind `greet`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, sock: socket.socket) -> "QmpMonitor":
        return cls(*await asyncio.open_connection(sock=sock))

    async def command(self, name: str, **arguments: object) -> Any:
        """Run a command and return its result; raises SandboxError when it fails, or QEMU is gone."""
        request = {"execute": name, "arguments": arguments} if arguments else {"execute": name}
        async with self._lock:
            self._writer.write(json.dumps(request).encode() + b"\n")
            while True:
                answer = await self._message()
                if "error" in answer:
                    raise SandboxError(f"QEMU refused {name}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]

    async def _message(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await self._reader.readline()
        except TimeoutError:
            raise SandboxError(f"QEMU did not answer within {ANSWER_S:.0f} s") from None
        except ConnectionError as error:
            raise ConnectionLostError(f"QEMU is gone: {error}") from error
        if not line:
            raise ConnectionLostError("QEMU is gone")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self._writer.close()
