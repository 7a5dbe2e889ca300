"""The backend's end of an agent's socket: one request at a time, each with a deadline."""

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

from ostinato.sandbox import frames
from ostinato.sandbox.base import SandboxError, SandboxPathError

Answer = tuple[dict[str, Any], bytes]
_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error
    for error in (FileNotFoundError, IsADirectoryError, NotADirectoryError, SandboxError, SandboxPathError)
}


class Wire(asyncio.Protocol):
    """A connection that answers `ask` with the agent's next frame.

    After a lost connection or a missed deadline the sandbox is gone: every further call raises SandboxError.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None
        self._lock = asyncio.Lock()
        self._gone: str | None = None

    @classmethod
    async def connect(cls, sock: socket.socket) -> "Wire":
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_unix_connection(cls, sock=sock)
        return wire

    async def ask(self, header: Mapping[str, Any], body: bytes = b"", *, within_s: float) -> Answer:
        """Send a request, wait for its answer; raises what the agent raised, SandboxError when it is gone."""
        async with self._lock:
            return await self._exchange(frames.pack(header, body), within_s)

    async def first(self, within_s: float) -> Answer:
        """The frame that the agent sends unasked."""
        async with self._lock:
            return await self._exchange(b"", within_s)

    async def _exchange(self, frame: bytes, within_s: float) -> Answer:
        if self._gone is not None or self._transport is None:
            raise SandboxError(self._gone or "the sandbox is not connected")
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        timer = loop.call_later(within_s, self.end, "the sandbox did not answer in time and was ended")
        try:
            if frame:
                self._transport.write(frame)
            self._deliver()
            answer = await self._answer
        except asyncio.CancelledError:
            self.end("a call was cancelled half-way: open another sandbox")
            raise
        finally:
            timer.cancel()
            self._answer = None
        return _checked(answer)

    async def close(self, reason: str) -> None:
        """`end`, and give the event loop its turn to close the socket."""
        self.end(reason)
        await asyncio.sleep(0)

    def end(self, reason: str) -> None:
        """Hang up: the agent exits, and everything in the sandbox with it."""
        if self._gone is None:
            self._gone = reason
        if self._transport is not None:
            self._transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(SandboxError(self._gone))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._deliver()

    def connection_lost(self, _: Exception | None) -> None:
        self.end("the sandbox died (its agent or the zygote was killed): open another")

    def _deliver(self) -> None:
        if self._answer is None or self._answer.done() or len(self._buffer) < frames.PREFIX:
            return
        header_length, body_length = frames.lengths(bytes(self._buffer[: frames.PREFIX]))
        middle = frames.PREFIX + header_length
        if len(self._buffer) < middle + body_length:
            return
        header = json.loads(self._buffer[frames.PREFIX : middle])
        self._answer.set_result((header, bytes(self._buffer[middle : middle + body_length])))
        del self._buffer[: middle + body_length]


def _checked(answer: Answer) -> Answer:
    header = answer[0]
    if "error" in header:
        kind = _ERRORS.get(header["error"], SandboxError)
        raise kind(header["message"])
    return answer
