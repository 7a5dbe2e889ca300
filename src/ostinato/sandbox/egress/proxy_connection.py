"""One connection of a sandbox through its proxy, from its first byte to its last."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http, tls_hello
from ostinato.sandbox.egress.meter import PIECE, Meter
from ostinato.sandbox.egress.policy import PolicyRefusal, Rules, split_target
from ostinato.sandbox.egress.streams import LINGER_S, Stream, close, replay

CONNECT_S = 10.0
HEAD_S = 10.0
MAX_INTERIM = 20
"""Limit for the interim responses before the final one."""
IDLE_S = 120.0
"""Seconds without a byte in either direction after which a connection is closed."""
_RESPONSE = b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"


@dataclass(slots=True, kw_only=True)
class ConnectionRecord:
    """The record of one connection of a sandbox.

    >>> ConnectionRecord(sandbox="5f", method="CONNECT", host="example.org", port=443).refused is None
    True
    """

    sandbox: str
    method: str = ""
    host: str = ""
    port: int = 0
    address: str = ""
    """The address of the host; empty if it was never resolved."""
    refused: str | None = None
    """The reason why it was refused or cut."""
    sent: int = 0
    received: int = 0
    began: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The settings and counters that all connections of a sandbox share."""

    policy: Egress
    rules: Rules
    meter: Meter


class ProxyConnection:
    """One connection, which is passed on as far as the rules allow, and its record."""

    def __init__(self, record: ConnectionRecord, inside: Stream, settings: ProxySettings) -> None:
        self._record = record
        self._inside = inside
        self._policy = settings.policy
        self._rules = settings.rules
        self._meter = settings.meter
        self._resources = AsyncExitStack()
        self._responding = False
        """True while the program does not expect a status line, so that an error cannot be sent."""
        self._last = time.monotonic()

    async def run(self) -> None:
        """Serve the connection to its end; never raise for an action of either side."""
        async with self._resources:
            try:
                await self._pass()
            except PolicyRefusal as error:
                await self._end("403 Forbidden", str(error))
            except TimeoutError:
                await self._end("504 Gateway Timeout", "timed out")
            except EOFError:
                await self._end("400 Bad Request", "there was no request")
            except (OSError, asyncio.IncompleteReadError) as error:
                await self._end("502 Bad Gateway", f"failed: {error}")

    async def refuse(self, why: str) -> None:
        """Refuse the connection before reading from it."""
        self._record.method = "?"
        await self._end("429 Too Many Requests", why)

    async def _end(self, status: str, why: str) -> None:
        """Record the reason, and send it to the program unless a response is under way; it may be gone."""
        self._record.refused = why
        if self._responding:
            return
        body = f"ostinato egress: {self._record.host or 'this request'}: {why}\n".encode()
        with suppress(OSError, TimeoutError):
            self._inside.writer.write(_RESPONSE % (status.encode(), len(body), body))
            if self._inside.writer.can_write_eof():
                self._inside.writer.write_eof()
            async with asyncio.timeout(LINGER_S):  # closing with unread bytes would discard the response
                while await self._inside.reader.read(PIECE):
                    pass

    async def _pass(self) -> None:
        head = await self._read_request()
        path = self._read_target(head)
        outside = await self._connect()
        if path is not None:
            await self._forward(head, path, outside)
            return
        self._establish()
        await self._pass_on(outside)

    async def _read_request(self) -> http.Head:
        """Read the head of a request and record its method."""
        async with asyncio.timeout(HEAD_S):
            head = await http.read_head(self._inside.reader)
        self._record.method = head.start[0][:20]
        return head

    def _read_target(self, head: http.Head) -> str | None:
        """Record host and port of a request; return its path, None for a tunnel."""
        if head.start[0] == "CONNECT":
            self._record.host, self._record.port = split_target(head.start[1])
            return None
        self._record.host, self._record.port, path = http.target(head)
        return path

    async def _connect(self) -> Stream:
        """Connect to the requested host; closed when the connection ends."""
        self._meter.check()
        async with asyncio.timeout(CONNECT_S):
            self._record.address = await self._rules.route(self._record.host, self._record.port)
            reader, writer = await asyncio.open_connection(
                self._record.address,
                self._record.port,
                limit=http.MAX_HEAD,
            )
        self._resources.push_async_callback(close, writer)
        return Stream(reader=reader, writer=writer)

    def _establish(self) -> None:
        self._inside.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self._responding = True

    async def _replay(self, start: bytes) -> None:
        """Put back the bytes that have been read; from here on the program can be sent an error."""
        self._inside = await self._resources.enter_async_context(replay(self._inside, start))
        self._responding = False

    async def _pass_on(self, outside: Stream) -> None:
        """Forward a connection that begins with an HTTP request as such, and copy any other."""
        up, down = await self._read_first(outside)
        if down or not http.begins(up):
            await self._send(self._inside.writer, down, up=False)
            await self._both_ways(outside, up)
            return
        await self._replay(up)
        head = await self._read_request()
        await self._forward(head, http.origin(head, self._record.host, self._record.port), outside)

    async def _read_first(self, outside: Stream) -> tuple[bytes, bytes]:
        """Return the first bytes of the client or of the server, whichever sends first.

        From the client it reads until it is clear if that is HTTP, however small the pieces are.
        """
        up = down = b""
        while not down and (not up or http.undecided(up)):
            more, down = await self._read_either(outside)
            if not more and not down:  # one has ended
                break
            up += more
        return up, down

    async def _read_either(self, outside: Stream) -> tuple[bytes, bytes]:
        """Return the next bytes of the side that sends first; none when one side has ended."""
        reads = [asyncio.create_task(self._read(stream.reader)) for stream in (self._inside, outside)]
        try:
            await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for read in reads:
                read.cancel()  # a cancelled read consumes nothing
            await asyncio.gather(*reads, return_exceptions=True)
        up, down = (b"" if read.cancelled() else read.result() for read in reads)
        return up, down

    async def _both_ways(self, outside: Stream, start: bytes = b"") -> None:
        """Copy both directions at once, since some servers send first. When one fails the other is cut."""
        copies = [
            asyncio.create_task(self._greet_and_copy(outside, start)),
            asyncio.create_task(self._copy(outside.reader, self._inside.writer, up=False)),
        ]
        try:
            await asyncio.gather(*copies)
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)

    async def _read_greeting(self, start: bytes = b"") -> bytes:
        """Return the client's first bytes, beginning with `start`; the whole first record if that is TLS."""
        greeting = start or await self._read(self._inside.reader)
        while left := tls_hello.missing(greeting):
            more = await self._inside.reader.read(left)
            if not more:
                break
            greeting += more
        return greeting

    async def _greet_and_copy(self, outside: Stream, start: bytes) -> None:
        greeting = await self._read_greeting(start)
        tls_hello.check_name(greeting, self._record.host)
        await self._send(outside.writer, greeting, up=True)
        await self._copy(self._inside.reader, outside.writer, up=True)

    async def _forward(self, head: http.Head, path: str, outside: Stream) -> None:
        strip, record = self._policy.strip, self._record
        request = http.request_for(head, record.host, record.port, path, strip)
        await self._send(outside.writer, request, up=True)
        async for piece in http.body(head, self._inside.reader, partial(self._count, up=True)):
            await self._send(outside.writer, piece, up=True)
        response = await self._read_response(outside.reader)
        self._responding = True
        await self._send(self._inside.writer, http.response_for(response, strip), up=False)
        on_dropped = partial(self._count, up=False)
        async for piece in http.response_body(response, head.start[0], outside.reader, on_dropped):
            await self._send(self._inside.writer, piece, up=False)

    async def _read_response(self, reader: asyncio.StreamReader) -> http.Head:
        """Return the head of the response; drop interim ones before it (100, 103)."""
        for _ in range(MAX_INTERIM + 1):
            async with asyncio.timeout(IDLE_S):
                head = await http.read_head(reader)
            if not head.start[1].startswith("1"):
                return head
            await self._count(head.size, up=False)
        raise PolicyRefusal(f"more than {MAX_INTERIM} interim responses")

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while piece := await self._read(reader):
            await self._send(writer, piece, up=up)
        if writer.can_write_eof():
            writer.write_eof()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """Read the next bytes. Raises TimeoutError when neither direction has moved for IDLE_S."""
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    return await reader.read(PIECE)
            except TimeoutError:
                if time.monotonic() - self._last > IDLE_S:
                    raise

    async def _count(self, size: int, *, up: bool) -> None:
        """Count bytes in the meter and the record, dropped ones as well."""
        await self._meter.pass_on(size, up=up)
        if up:
            self._record.sent += size
        else:
            self._record.received += size

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, *, up: bool) -> None:
        await self._count(len(data), up=up)
        writer.write(data)
        async with asyncio.timeout(IDLE_S):
            await writer.drain()
        self._last = time.monotonic()
