"""JSON-RPC messages as lines of standard input and output.

A line that cannot be read gets an error response, and the connection goes on.
"""

import asyncio
import json
import os
import sys
from typing import Any

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL = -32700, -32600, -32602, -32603
MAX_LINE = 64 * 2**20


class JsonRpcLines:
    """A transport of messages.

    `receive` returns None at the end of input, and never raises for a malformed line.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def receive(self) -> dict[str, Any] | None:
        while True:
            try:
                line = await self._line()
            except asyncio.LimitOverrunError:
                await self._refuse(INVALID_REQUEST, f"a message is at most {MAX_LINE} bytes", None)
                await self._skip_line()
                continue
            if not line:
                return None
            message = await self._message(line) if line.strip() else None
            if message is not None:
                return message

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raise ConnectionError when the other side has closed the connection."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._sending:
            self._writer.write(line)
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()

    async def _line(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial

    async def _skip_line(self) -> None:
        while True:
            try:
                await self._reader.readuntil(b"\n")
                return
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
            except asyncio.IncompleteReadError:
                return

    async def _message(self, line: bytes) -> dict[str, Any] | None:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            await self._refuse(PARSE_ERROR, f"not JSON: {error}", None)
            return None
        violation = _violation(value)
        if violation:
            await self._refuse(
                INVALID_REQUEST, violation, value.get("id") if isinstance(value, dict) else None
            )
            return None
        return value  # type: ignore[no-any-return]

    async def _refuse(self, code: int, message: str, about: object) -> None:
        await self.send({"jsonrpc": "2.0", "id": about, "error": {"code": code, "message": message}})


def _violation(value: object) -> str:
    """Return the reason that a value is no JSON-RPC message; empty when it is one."""
    if not isinstance(value, dict):
        return "a message is a JSON object; batches are not part of the protocol"
    if not isinstance(value.get("id", 0), int | str | None):
        return "the id of a message is a number or a string"
    if "method" in value:
        if not isinstance(value["method"], str):
            return "method is a string"
        if not isinstance(value.get("params", {}), dict | None):
            return "params is an object"
        return ""
    return "" if "id" in value else "a message has a method, or an id and a result"


async def standard_streams() -> JsonRpcLines:
    """Return the standard streams for the protocol, and send everything printed from here on to standard
    error.

    Raise ValueError when standard input is neither a pipe nor a socket.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), output
    )
    return JsonRpcLines(reader, asyncio.StreamWriter(transport, protocol, None, loop))
