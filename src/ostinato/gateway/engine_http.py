"""HTTP/1.1 to engines, and no more of it than that takes: one POST at a time on connections kept open."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import httptools

CONNECT_S = 5.0
READ_S = 300.0
"""The longest silence of an engine at work."""
KEPT_S = 60.0
"""How long an unused connection is kept."""
MOST_UNREAD = 2**22
"""Bytes that wait for their reader before the engine has to."""


class EngineGoneError(ConnectionError):
    """An engine that cannot be reached, or left in the middle of its answer."""


class Answer(asyncio.Protocol):
    """A connection, and the answer that arrives on it."""

    def __init__(self) -> None:
        self.status = 0
        self.complete = True
        self.used_at = 0.0
        self._reusable = True
        self._failure: Exception | None = None
        self._parts: list[bytes] = []
        self._unread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        kept = time.monotonic() - self.used_at < KEPT_S
        return self.complete and self._reusable and self._failure is None and kept

    def ask(self, request: bytes) -> None:
        self.status, self.complete = 0, False
        self._parts, self._unread = [], 0
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    async def begun(self) -> None:
        """Returns when the status is there. Raises EngineGoneError, TimeoutError, as all of these do."""
        while not self.status:
            await self._more()

    async def read(self) -> bytes:
        """The whole body."""
        while not self.complete:
            await self._more()
        return self._taken()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        while True:
            if self._parts:
                yield self._taken()
            elif self.complete:
                return
            else:
                await self._more()

    def close(self) -> None:
        self._transport.close()

    async def _more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(READ_S):
                await self._waiter
        finally:
            self._waiter = None

    def _taken(self) -> bytes:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if self._unread >= MOST_UNREAD:
            self._transport.resume_reading()
        self._parts, self._unread = [], 0
        return data

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._failure is None:
            self._failure = EngineGoneError(f"the engine closed the connection: {error or 'in the middle'}")
        self._wake()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._failure = EngineGoneError(f"the engine does not speak HTTP: {error}")
            self._transport.close()
            self._wake()

    def on_message_begin(self) -> None:
        if self.complete:
            self._failure = EngineGoneError("the engine spoke without being asked")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._reusable = self._parser.should_keep_alive()
        self._wake()

    def on_body(self, body: bytes) -> None:
        before, self._unread = self._unread, self._unread + len(body)
        self._parts.append(body)
        if before < MOST_UNREAD <= self._unread:
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        self.complete, self.used_at = True, time.monotonic()
        self._wake()


class EngineHttp:
    """Posts to engines. Connections are kept by address, and closed with it."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Answer]] = {}

    def close(self) -> None:
        for idle in self._idle.values():
            for answer in idle:
                answer.close()
        self._idle.clear()

    @asynccontextmanager
    async def post(self, url: str, body: bytes) -> AsyncGenerator[Answer]:
        """The answer once its status is there. Leaving before its end closes the connection.

        Raises EngineGoneError, TimeoutError.
        """
        idle = self._idle.setdefault(url, [])
        answer = await self._connection(url, idle)
        try:
            answer.ask(_head(url, len(body)) + body)
            await answer.begun()
            yield answer
        finally:
            if answer.reusable:
                idle.append(answer)
            else:
                answer.close()

    async def _connection(self, url: str, idle: list[Answer]) -> Answer:
        while idle:
            answer = idle.pop()
            if answer.reusable:
                return answer
            answer.close()
        return await _connect(url)


async def _connect(url: str) -> Answer:
    try:
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError("the address names no host, write it as http://HOST:PORT")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        async with asyncio.timeout(CONNECT_S):
            _, answer = await asyncio.get_running_loop().create_connection(
                Answer, parts.hostname, port, ssl=secure or None
            )
    except (OSError, ValueError) as error:
        raise EngineGoneError(f"no engine at {url}: {error}") from error
    return answer


def _head(url: str, length: int) -> bytes:
    _, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    kind = "Content-Type: application/json"
    return f"POST /{path} HTTP/1.1\r\nHost: {host}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n".encode()
