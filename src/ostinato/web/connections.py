"""A client of our own servers: HTTP/1.1 over connections that stay open.

A general client does much for each request that they never need: cookies, redirects, proxies, compression.
That was a fifth of the CPU time of a model call in the gateway.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httptools

CONNECT_S = 5.0
SILENT_S = 300.0
"""Seconds without a byte after which a server counts as away."""


class AwayError(Exception):
    """The server cannot be reached, or its connection broke or was silent for too long."""


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    status = 0
    """The status of the response; 0 before its head has arrived."""
    complete = False
    stays_open = False
    """Whether the server takes another request on this connection after a complete response."""
    _transport: Any  # uvloop's are no `asyncio.Transport`
    _pieces: list[bytes]
    _error: str | None = None
    _wake: "asyncio.Future[None] | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)
        self._pieces = []

    def connection_lost(self, error: Exception | None) -> None:
        self.break_off(f"the connection was closed: {error or 'by the server'}")

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.break_off(f"not HTTP: {error}")
        self._arrived()

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.complete, self.stays_open = True, self._parser.should_keep_alive()

    @property
    def is_free(self) -> bool:
        return self.stays_open and self._error is None

    def break_off(self, why: str) -> None:
        """Close the connection; a response that is not complete ends with an AwayError."""
        self._error = self._error or why
        self._transport.abort()
        self._arrived()

    async def send(self, request: bytes) -> None:
        """Send a request and return when the head of its response has arrived. Raise AwayError."""
        self.status, self.complete, self.stays_open, self._pieces = 0, False, False, []
        self._transport.write(request)
        while not self.status:
            await self._more()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise AwayError when it breaks off."""
        while self._pieces or not self.complete:
            if self._pieces:
                data, self._pieces = b"".join(self._pieces), []
                yield data
            else:
                await self._more()

    async def read(self) -> bytes:
        """Return the whole body. Raise AwayError when it breaks off."""
        while not self.complete:
            await self._more()
        return b"".join(self._pieces)

    async def _more(self) -> None:
        if self._error is not None:
            raise AwayError(self._error)
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        silent = loop.call_later(SILENT_S, self.break_off, f"no byte for {SILENT_S:.0f} s")
        try:
            await self._wake
        finally:
            silent.cancel()

    def _arrived(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Connections:
    """The connections to all servers; each request takes a free one, or makes one."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._free: dict[str, list[Connection]] = {}

    def close(self) -> None:
        for connections in self._free.values():
            for connection in connections:
                connection.break_off("this process stops")

    @asynccontextmanager
    async def open(self, url: str, path: str, body: bytes | None = None) -> AsyncGenerator[Connection]:
        """Send `body` with POST, or GET without one; yield the connection when the response begins.

        Leaving before the response is complete closes the connection. Raises AwayError.
        """
        connection = self._take(url) or await self._connected(url)
        try:
            await connection.send(self._request(url, path, body))
            yield connection
        finally:
            if connection.is_free:
                self._free.setdefault(url, []).append(connection)
            else:
                connection.break_off("the request was given up")

    def _take(self, url: str) -> Connection | None:
        free = self._free.get(url, ())
        while free:
            if (connection := free.pop()).is_free:
                return connection
        return None

    async def _connected(self, url: str) -> Connection:
        address = _address(url)
        loop, secure = asyncio.get_running_loop(), address.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    Connection,
                    address.hostname or "",
                    address.port or (443 if secure else 80),
                    ssl=secure or None,
                )
        except (OSError, TimeoutError) as error:
            raise AwayError(f"no connection to {url}: {error or 'no answer'}") from error
        return connection

    def _request(self, url: str, path: str, body: bytes | None) -> bytes:
        address = _address(url)
        kind = "GET" if body is None else "POST"
        head = f"{kind} {address.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n{self._fields}"
        return f"{head}Content-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b"")


_address = lru_cache(1_024)(urlsplit)
