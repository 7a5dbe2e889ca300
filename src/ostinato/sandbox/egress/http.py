"""HTTP/1.1 as a proxy needs it: heads are parsed and written anew, bodies pass with their length known.

A request that could be read in two ways (two lengths, a length beside chunks, folded lines, odd characters)
is refused: what the proxy thinks ended here could be the start of another request over there (RFC 9112,
section 11.2).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from ostinato.sandbox.egress.meter import PIECE
from ostinato.sandbox.egress.policy import Refused, split_target

MAX_HEAD = 32 * 1024
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "upgrade",
    }
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIRST = re.compile(rb"[\r\n\t ]*[A-Za-z][A-Za-z-]{0,30}[ \t]+(/|\*|[A-Za-z]{2,10}://)")
_BEFORE_FIRST = re.compile(
    rb"[\r\n\t ]*([A-Za-z][A-Za-z-]{0,30}([ \t]+([A-Za-z]{1,10}|[A-Za-z]{2,10}:/?)?)?)?"
)
"""What could still become the first, once more has come."""
_ORIGIN = re.compile(r"/[^#\s]*|\*")
_URI = re.compile(r"http://([^/?#@\s]+)([/?][^#\s]*)?", re.IGNORECASE)
Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The start of a request or a response.

    >>> parse(b"GET http://a.test/x HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n").start
    ('GET', 'http://a.test/x', 'HTTP/1.1')
    """

    start: tuple[str, str, str]
    headers: tuple[Header, ...]
    size: int = 0
    """Bytes that it had where it came from."""

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


async def read_head(reader: asyncio.StreamReader) -> Head:
    """The next head; raises Refused when it is too long or not HTTP, EOFError when nothing comes."""
    try:
        return parse(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise Refused(f"a head of more than {MAX_HEAD} bytes") from None
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise EOFError from None
        raise Refused("the connection ended within a head") from None


def parse(data: bytes) -> Head:
    """Raises Refused."""
    first, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    start = first.split(" ", 2)
    if len(start) != 3 or any(ord(char) < 32 for char in first):
        raise Refused("not an HTTP head: this is an HTTP proxy")
    headers = tuple(_header(line) for line in lines)
    return Head(start=(start[0], start[1], start[2]), headers=headers, size=len(data))


def _header(line: str) -> Header:
    name, colon, value = line.partition(":")
    if not colon or not _TOKEN.fullmatch(name) or any(ord(char) < 32 and char != "\t" for char in value):
        raise Refused(f"a header that is none: {line[:80]!r}")
    return name, value.strip(" \t")


def target(head: Head) -> tuple[str, int, str]:
    """Host, port and path of a request in absolute form; the `Host` header is not asked. Raises Refused."""
    found = _URI.fullmatch(head.start[1])
    if found is None:
        raise Refused(f"{head.start[1][:80]!r}: give the whole http:// address, or use CONNECT")
    host, port = split_target(found[1], default_port=80)
    path = found[2] or "/"
    return host, port, path if path.startswith("/") else "/" + path


def begins(data: bytes) -> bool:
    """Whether the first bytes of a connection look like a request, as the most lenient server reads it."""
    return _FIRST.match(data) is not None


def undecided(data: bytes) -> bool:
    """Whether the first bytes of a connection may turn out to be the start of a request: more must come."""
    return len(data) < MAX_HEAD and _BEFORE_FIRST.fullmatch(data) is not None


def origin(head: Head, host: str, port: int) -> str:
    """The path of a request to the server itself, whose `Host` must be the one that was connected to.

    Raises Refused.
    """
    named = head.values("host")
    if len(named) != 1:
        raise Refused(f"{len(named)} `Host` headers on a connection to {host}: there must be one")
    if split_target(named[0], default_port=port) != (host, port):
        raise Refused(f"a connection to {host}:{port} asks there for {named[0][:100]!r}")
    if not _ORIGIN.fullmatch(head.start[1]):
        raise Refused(f"{head.start[1][:80]!r} is not a path: this is {host} and no proxy")
    return head.start[1]


def request_for(
    head: Head, host: str, port: int, path: str, strip: Collection[str], *, usual_port: int = 80
) -> bytes:
    """The head that is sent on: our own `Host`, one request on a connection, nothing of `strip`.

    Raises Refused when the end of the body behind it is in doubt.
    """
    body_length(head)  # before anything is sent: half a request is not taken back
    name = f"[{host}]" if ":" in host else host
    kept = [("Host", name if port == usual_port else f"{name}:{port}"), *_kept(head, {*strip, "host"})]
    return _write((head.start[0], path, "HTTP/1.1"), [*kept, ("Connection", "close")])


def response_for(head: Head, strip: Collection[str]) -> bytes:
    """The head that is given back."""
    return _write(head.start, [*_kept(head, strip), ("Connection", "close")])


def _kept(head: Head, strip: Collection[str]) -> list[Header]:
    """Without what `strip` names, what concerns this hop only, and what `Connection` calls so."""
    named = {name.strip().lower() for value in head.values("connection") for name in value.split(",")}
    gone = _HOP_BY_HOP | named | {name.lower() for name in strip}
    return [header for header in head.headers if header[0].lower() not in gone]


def _write(start: tuple[str, str, str], headers: list[Header]) -> bytes:
    lines = [" ".join(start), *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


Dropped = Callable[[int], Awaitable[None]]
"""Is told of bytes that came and are not passed on: they are counted as well."""


async def answer_body(
    head: Head, method: str, reader: asyncio.StreamReader, dropped: Dropped
) -> AsyncIterator[bytes]:
    """A response's body, to the end of the connection when it says no length (RFC 9112, section 6.3)."""
    if method == "HEAD" or head.start[1] in ("204", "304"):
        return
    if head.values("transfer-encoding") or head.values("content-length"):
        async for piece in body(head, reader, dropped):
            yield piece
        return
    while piece := await reader.read(PIECE):
        yield piece


async def body(head: Head, reader: asyncio.StreamReader, dropped: Dropped) -> AsyncIterator[bytes]:
    """A body as it came, chunks with their framing; raises Refused when its end is in doubt."""
    length = body_length(head)
    if length is None:
        async for piece in _chunks(reader, dropped):
            yield piece
    else:
        async for piece in _exactly(reader, length):
            yield piece


def body_length(head: Head) -> int | None:
    """Bytes of the body behind a head, None when it comes in chunks; raises Refused when that is in doubt."""
    lengths, codings = head.values("content-length"), head.values("transfer-encoding")
    if (lengths and codings) or len(lengths) > 1 or len(codings) > 1:
        raise Refused("a body with two lengths")
    if not codings:
        return _number(lengths[0], 10) if lengths else 0
    if codings[0].lower() != "chunked":
        raise Refused(f"transfer coding {codings[0][:40]!r}: only chunked is passed on")
    return None


async def _chunks(reader: asyncio.StreamReader, dropped: Dropped) -> AsyncIterator[bytes]:
    """Each chunk with a size line of our own; extensions and trailers are dropped."""
    while True:
        line = await _line(reader)
        size = _number(line.partition(b";")[0].strip().decode("latin-1"), 16)
        await dropped(len(line))
        yield b"%x\r\n" % size
        if not size:
            break
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise Refused("a chunk longer than it says")
        yield b"\r\n"
    left = MAX_HEAD
    while (line := await _line(reader)) != b"\r\n":
        await dropped(len(line))
        left -= len(line)
        if left < 0:
            raise Refused(f"more than {MAX_HEAD} bytes of trailers")
    yield b"\r\n"


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError:  # longer than the reader's buffer, which is MAX_HEAD
        raise Refused(f"a line of a chunked body of more than {MAX_HEAD} bytes") from None
    if not line.endswith(b"\r\n"):
        raise Refused("a line of a chunked body without its end")
    return line


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        piece = await reader.read(min(size, PIECE))
        if not piece:
            raise Refused("the connection ended within a body")
        size -= len(piece)
        yield piece


def _number(text: str, base: int) -> int:
    digits = "0123456789abcdef"[:base]
    if not text or len(text) > 15 or any(char not in digits for char in text.lower()):
        raise Refused(f"{text[:40]!r} is not a length")
    return int(text, base)
