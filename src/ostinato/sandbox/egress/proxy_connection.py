"""One connection of a sandbox through its proxy, from its first byte to its last."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http, tls_hello
from ostinato.sandbox.egress.authority import Authority
from ostinato.sandbox.egress.meter import PIECE, Meter
from ostinato.sandbox.egress.policy import Refused, Rules, split_target
from ostinato.sandbox.egress.streams import LINGER_S, Ends, close, reread

CONNECT_S = 10.0
HEAD_S = 10.0
MAX_INTERIM = 20
"""Interim responses before the one that counts."""
IDLE_S = 120.0
"""Seconds without a byte either way after which a connection is closed."""
_ANSWER = b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"


@dataclass(slots=True, kw_only=True)
class Connection:
    """One attempt to get out.

    >>> Connection(sandbox="5f", method="CONNECT", host="example.org", port=443).refused is None
    True
    """

    sandbox: str
    method: str = ""
    host: str = ""
    port: int = 0
    address: str = ""
    """What the host was resolved to; empty when it never came to that."""
    refused: str | None = None
    """Why it was not made, or was cut."""
    sent: int = 0
    received: int = 0
    began: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for all connections of a sandbox."""

    policy: Egress
    rules: Rules
    meter: Meter
    authority: Authority | None
    """None when nothing is inspected."""


class Visit:
    """Passes one connection on as far as the rules allow, and fills in its record."""

    def __init__(self, seen: Connection, inside: Ends, terms: Terms) -> None:
        self._seen = seen
        self._inside = inside
        self._policy = terms.policy
        self._rules = terms.rules
        self._meter = terms.meter
        self._authority = terms.authority
        self._held = AsyncExitStack()
        self._answering = False
        """True while a status line of ours would be taken for something else."""
        self._last = time.monotonic()

    async def run(self) -> None:
        """Until its end; never raises for what either side did."""
        async with self._held:
            await self._run()

    async def _run(self) -> None:
        try:
            await self._pass()
        except Refused as error:
            await self._end("403 Forbidden", str(error))
        except TimeoutError:
            await self._end("504 Gateway Timeout", "timed out")
        except EOFError:
            await self._end("400 Bad Request", "nothing was asked")
        except (OSError, asyncio.IncompleteReadError) as error:
            await self._end("502 Bad Gateway", f"failed: {error}")

    async def refuse(self, why: str) -> None:
        """Say no before anything is read."""
        self._seen.method = "?"
        await self._end("429 Too Many Requests", why)

    async def _end(self, status: str, why: str) -> None:
        """Note why, and tell the program if nothing else was told it; it may be gone already."""
        self._seen.refused = why
        if self._answering:
            return
        body = f"ostinato egress: {self._seen.host or 'this request'}: {why}\n".encode()
        with suppress(OSError, TimeoutError):
            self._inside.writer.write(_ANSWER % (status.encode(), len(body), body))
            if self._inside.writer.can_write_eof():
                self._inside.writer.write_eof()
            async with asyncio.timeout(LINGER_S):  # a socket closed with unread bytes takes the answer back
                while await self._inside.reader.read(PIECE):
                    pass

    async def _pass(self) -> None:
        async with asyncio.timeout(HEAD_S):
            head = await http.read_head(self._inside.reader)
        self._seen.method = head.start[0][:20]
        path = self._aim(head)
        if path is None and self._rules.inspects(self._seen.host, self._seen.port):
            self._establish()
            await self._inspect()
            return
        outside = await self._connect()
        await (self._tunnel(outside) if path is None else self._forward(head, path, outside))

    def _aim(self, head: http.Head) -> str | None:
        """Note host and port of a request; answers its path, None for a tunnel."""
        if head.start[0] == "CONNECT":
            self._seen.host, self._seen.port = split_target(head.start[1])
            return None
        self._seen.host, self._seen.port, path = http.target(head)
        return path

    async def _connect(self, *, secure: bool = False) -> Ends:
        """To where it wants; `secure`: with TLS of our own. Closed when all is over."""
        authority = self._authority if secure else None
        self._meter.check()
        async with asyncio.timeout(CONNECT_S):
            self._seen.address = await self._rules.route(self._seen.host, self._seen.port)
            reader, writer = await asyncio.open_connection(
                self._seen.address,
                self._seen.port,
                limit=http.MAX_HEAD,
                ssl=authority.outside if authority else None,
                server_hostname=self._seen.host if authority else None,
            )
        self._held.push_async_callback(close, writer)
        return Ends(reader=reader, writer=writer)

    def _establish(self) -> None:
        self._inside.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self._answering = True

    async def _inspect(self) -> None:
        """What is said is read as HTTP, out of TLS if it is in it; what cannot be read is refused."""
        seen = self._seen
        start = await self._greeting()
        tls_hello.check_name(start, seen.host)
        secure = tls_hello.begins(start)
        await self._reread(start, secure=secure)
        async with asyncio.timeout(HEAD_S):
            head = await http.read_head(self._inside.reader)
        seen.method = head.start[0][:20]
        path = http.origin(head, seen.host, seen.port)
        await self._forward(head, path, await self._connect(secure=secure), usual_port=443 if secure else 80)

    async def _reread(self, start: bytes, *, secure: bool) -> None:
        """Take back what has been read; from here on the program can be told what is wrong."""
        context = self._authority.inside(self._seen.host) if secure and self._authority else None
        self._inside = await self._held.enter_async_context(reread(self._inside, start, context))
        self._answering = False

    async def _tunnel(self, outside: Ends) -> None:
        self._establish()
        await self._pass_on(outside)

    async def _pass_on(self, outside: Ends) -> None:
        """HTTP as a proxy does, all else as it comes."""
        up, down = await self._first(outside)
        if down or not http.begins(up):
            await self._send(self._inside.writer, down, up=False)
            await self._both_ways(outside, up)
            return
        await self._reread(up, secure=False)
        async with asyncio.timeout(HEAD_S):
            head = await http.read_head(self._inside.reader)
        self._seen.method = head.start[0][:20]
        await self._forward(head, http.origin(head, self._seen.host, self._seen.port), outside)

    async def _first(self, outside: Ends) -> tuple[bytes, bytes]:
        """What the client and what the server says first: one waits for the other, and either may be it.

        Of the client as much as tells whether it is HTTP, in however small pieces it comes.
        """
        up = down = b""
        while not down and (not up or http.undecided(up)):
            more, down = await self._either(outside)
            if not more and not down:  # one has ended
                break
            up += more
        return up, down

    async def _either(self, outside: Ends) -> tuple[bytes, bytes]:
        """The next bytes of whichever speaks; neither's when one has nothing more to say."""
        reads = [asyncio.create_task(self._some(ends.reader)) for ends in (self._inside, outside)]
        try:
            await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for read in reads:
                read.cancel()  # a read that is cancelled takes nothing
            await asyncio.gather(*reads, return_exceptions=True)
        up, down = (b"" if read.cancelled() else read.result() for read in reads)
        return up, down

    async def _both_ways(self, outside: Ends, start: bytes = b"") -> None:
        """Both at once: some servers speak first. When one way fails the other is cut."""
        ways = [
            asyncio.create_task(self._greet_and_copy(outside, start)),
            asyncio.create_task(self._copy(outside.reader, self._inside.writer, up=False)),
        ]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _greeting(self, start: bytes = b"") -> bytes:
        """What a client says first; all of it if that is TLS. `start`: what has come of it."""
        greeting = start or await self._some(self._inside.reader)
        while left := tls_hello.missing(greeting):
            more = await self._inside.reader.read(left)
            if not more:
                break
            greeting += more
        return greeting

    async def _greet_and_copy(self, outside: Ends, start: bytes) -> None:
        greeting = await self._greeting(start)
        tls_hello.check_name(greeting, self._seen.host)
        await self._send(outside.writer, greeting, up=True)
        await self._copy(self._inside.reader, outside.writer, up=True)

    async def _forward(self, head: http.Head, path: str, outside: Ends, *, usual_port: int = 80) -> None:
        strip, seen = self._policy.strip, self._seen
        asked = http.request_for(head, seen.host, seen.port, path, strip, usual_port=usual_port)
        await self._send(outside.writer, asked, up=True)
        async for piece in http.body(head, self._inside.reader, partial(self._count, up=True)):
            await self._send(outside.writer, piece, up=True)
        answer = await self._final(outside.reader)
        self._answering = True
        await self._send(self._inside.writer, http.response_for(answer, strip), up=False)
        dropped = partial(self._count, up=False)
        async for piece in http.answer_body(answer, head.start[0], outside.reader, dropped):
            await self._send(self._inside.writer, piece, up=False)

    async def _final(self, reader: asyncio.StreamReader) -> http.Head:
        """The head of the response; interim ones before it (100, 103) are dropped."""
        for _ in range(MAX_INTERIM + 1):
            async with asyncio.timeout(IDLE_S):
                head = await http.read_head(reader)
            if not head.start[1].startswith("1"):
                return head
            await self._count(head.size, up=False)
        raise Refused(f"more than {MAX_INTERIM} interim responses")

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while piece := await self._some(reader):
            await self._send(writer, piece, up=up)
        if writer.can_write_eof():
            writer.write_eof()

    async def _some(self, reader: asyncio.StreamReader) -> bytes:
        """The next bytes; raises TimeoutError when neither direction has moved for too long."""
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    return await reader.read(PIECE)
            except TimeoutError:
                if time.monotonic() - self._last > IDLE_S:
                    raise

    async def _count(self, size: int, *, up: bool) -> None:
        """Also what is dropped: it came, or was to go, all the same."""
        await self._meter.pass_on(size, up=up)
        if up:
            self._seen.sent += size
        else:
            self._seen.received += size

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, *, up: bool) -> None:
        await self._count(len(data), up=up)
        writer.write(data)
        async with asyncio.timeout(IDLE_S):
            await writer.drain()
        self._last = time.monotonic()
