"""A client of our own servers: HTTP/1.1 over connections that stay open.

A general client does much for each request that these never need: cookies, redirects, proxies, compression.
That was a quarter of the CPU time of a model call in the gateway. A body has a length or is chunked; one that
ends with its connection counts as broken.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

import httptools

CONNECT_S = 5.0
SILENT_S = 300.0
"""Seconds without a byte after which a server counts as away."""
IDLE_S = 60.0
"""Seconds after which a connection is not used again; our servers close it a little later."""


class AwayError(Exception):
    """The server cannot be reached, or its connection broke or was silent for too long."""


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self.status = 0
        """The status of the response; 0 before its head has arrived."""
        self.is_free = False
        """True once the response is complete and the server takes another request."""
        self._complete = True
        self._pieces: list[bytes] = []
        self._error = ""
        self._wake: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._transport: Any = None  # uvloop's are no `asyncio.Transport`

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.break_off(f"the connection was closed: {error or 'by the server'}")

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.break_off(f"not HTTP: {error}")
        self._arrived()

    def on_message_begin(self) -> None:
        if self._complete:
            raise AwayError("no request is under way")  # which ends the parser's work

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._complete, self.is_free = True, self._parser.should_keep_alive() and not self._error

    def break_off(self, why: str) -> None:
        """Close the connection; a response that is not complete ends with an AwayError."""
        self._error, self.is_free = self._error or why, False
        self._transport.abort()
        self._arrived()

    async def send(self, request: bytes) -> None:
        """Send a request and return when the head of its response has arrived. Raise AwayError."""
        self.status, self.is_free, self._complete, self._pieces = 0, False, False, []
        self._transport.write(request)
        while not self.status:
            await self._more()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise AwayError when it breaks off."""
        while self._pieces or not self._complete:
            if self._pieces:
                data, self._pieces = b"".join(self._pieces), []
                yield data
            else:
                await self._more()

    async def read(self) -> bytes:
        """Return the whole body. Raise AwayError when it breaks off."""
        while not self._complete:
            await self._more()
        return b"".join(self._pieces)

    async def _more(self) -> None:
        if self._error:
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
        self._free: dict[str, list[tuple[float, Connection]]] = {}
        """The connections that wait, by URL, each with the time of its last use, in the order of use."""

    def close(self) -> None:
        for free in self._free.values():
            for _, connection in free:
                connection.break_off("this process stops")

    @asynccontextmanager
    async def open(self, url: str, path: str, body: bytes | None = None) -> AsyncGenerator[Connection]:
        """Send `body` with POST, or GET without one; yield the connection when the response begins.

        Leaving before the response is complete closes the connection. Raises AwayError.
        """
        connection = self._take(url) or await _connected(url)
        try:
            await connection.send(self._request(url, path, body))
            yield connection
        finally:
            if connection.is_free:
                self._free.setdefault(url, []).append((time.monotonic(), connection))
            else:
                connection.break_off("the request was given up")

    def _take(self, url: str) -> Connection | None:
        free, oldest = self._free.get(url), time.monotonic() - IDLE_S
        while free:
            used_at, connection = free.pop()
            if connection.is_free and used_at > oldest:
                return connection
            connection.break_off("it was not used for long")
        return None

    def _request(self, url: str, path: str, body: bytes | None) -> bytes:
        address, kind = _address(url), "GET" if body is None else "POST"
        head = f"{kind} {address.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n{self._fields}"
        return f"{head}Content-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b"")


async def _connected(url: str) -> Connection:
    try:
        address, loop = _address(url), asyncio.get_running_loop()
        tls = _tls() if address.scheme == "https" else None
        host, port = address.hostname or "", address.port or (443 if tls else 80)
        async with asyncio.timeout(CONNECT_S):
            return (await loop.create_connection(Connection, host, port, ssl=tls))[1]
    except (OSError, TimeoutError, ValueError) as error:
        raise AwayError(f"no connection to {url}: {error or 'no answer'}") from error


_address = lru_cache(1_024)(urlsplit)
_tls = cache(ssl.create_default_context)
"""Reading the certificates of the system takes tens of milliseconds, so it is done once."""
