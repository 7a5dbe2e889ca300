"""HTTP/1.1 for a proxy: heads are parsed and written anew, bodies are passed on with a known length.

A request that could be read in two ways (two lengths, a length beside chunks, folded lines, control
characters) is refused, because the server could take the end of it for the start of another request (request
smuggling, RFC 9112, section 11.2).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from ostinato.sandbox.egress.meter import PIECE
from ostinato.sandbox.egress.policy import PolicyRefusal, split_target

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
"""The beginning of a request line, which more bytes could complete."""
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
    """Bytes of the head as it was received."""

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read the next head. Raises PolicyRefusal if it is too long or not HTTP, EOFError at the end."""
    try:
        return parse(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise PolicyRefusal(f"a head of more than {MAX_HEAD} bytes") from None
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise EOFError from None
        raise PolicyRefusal("the connection ended within a head") from None


def parse(data: bytes) -> Head:
    """Parse a head. Raises PolicyRefusal."""
    first, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    start = first.split(" ", 2)
    if len(start) != 3 or any(ord(char) < 32 for char in first):
        raise PolicyRefusal("not an HTTP head: this is an HTTP proxy")
    headers = tuple(_header(line) for line in lines)
    return Head(start=(start[0], start[1], start[2]), headers=headers, size=len(data))


def _header(line: str) -> Header:
    name, colon, value = line.partition(":")
    if not colon or not _TOKEN.fullmatch(name) or any(ord(char) < 32 and char != "\t" for char in value):
        raise PolicyRefusal(f"an invalid header: {line[:80]!r}")
    return name, value.strip(" \t")


def target(head: Head) -> tuple[str, int, str]:
    """Return host, port and path of a request in absolute form; `Host` is ignored. Raises PolicyRefusal."""
    match = _URI.fullmatch(head.start[1])
    if match is None:
        raise PolicyRefusal(f"{head.start[1][:80]!r}: give the whole http:// address, or use CONNECT")
    host, port = split_target(match[1], default_port=80)
    path = match[2] or "/"
    return host, port, path if path.startswith("/") else "/" + path


def begins(data: bytes) -> bool:
    """Return True if the first bytes of a connection are a request to even the most lenient server."""
    return _FIRST.match(data) is not None


def undecided(data: bytes) -> bool:
    """Return True if it takes more bytes to know if a connection begins with a request."""
    return len(data) < MAX_HEAD and _BEFORE_FIRST.fullmatch(data) is not None


def origin(head: Head, host: str, port: int) -> str:
    """Return the path of a request to the server itself, whose `Host` must be the host of the connection.

    Raises PolicyRefusal.
    """
    named = head.values("host")
    if len(named) != 1:
        raise PolicyRefusal(f"{len(named)} `Host` headers on a connection to {host}: there must be one")
    if split_target(named[0], default_port=port) != (host, port):
        raise PolicyRefusal(f"a connection to {host}:{port} requests {named[0][:100]!r}")
    if not _ORIGIN.fullmatch(head.start[1]):
        raise PolicyRefusal(f"{head.start[1][:80]!r} is not a path: this is {host}, not a proxy")
    return head.start[1]


def request_for(head: Head, host: str, port: int, path: str, strip: Collection[str]) -> bytes:
    """Return the head to send on: our own `Host`, one request a connection, no header of `strip`.

    Raises PolicyRefusal when the end of the body is in doubt.
    """
    body_length(head)  # checked first, because half a request cannot be taken back
    name = f"[{host}]" if ":" in host else host
    headers = [
        ("Host", name if port == 80 else f"{name}:{port}"),
        *_passed_on(head, {*strip, "host"}),
    ]
    return _write((head.start[0], path, "HTTP/1.1"), [*headers, ("Connection", "close")])


def response_for(head: Head, strip: Collection[str]) -> bytes:
    """Return the head of the response for the client."""
    return _write(head.start, [*_passed_on(head, strip), ("Connection", "close")])


def _passed_on(head: Head, strip: Collection[str]) -> list[Header]:
    """Return the headers without those of `strip`, of this hop only, and named by `Connection`."""
    named = {name.strip().lower() for value in head.values("connection") for name in value.split(",")}
    removed = _HOP_BY_HOP | named | {name.lower() for name in strip}
    return [header for header in head.headers if header[0].lower() not in removed]


def _write(start: tuple[str, str, str], headers: list[Header]) -> bytes:
    lines = [" ".join(start), *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


OnDropped = Callable[[int], Awaitable[None]]
"""Called with the number of bytes that are dropped instead of passed on: they are counted as well."""


async def response_body(
    head: Head, method: str, reader: asyncio.StreamReader, on_dropped: OnDropped
) -> AsyncIterator[bytes]:
    """Yield a response's body, without a length up to the end of the stream (RFC 9112, section 6.3)."""
    if method == "HEAD" or head.start[1] in ("204", "304"):
        return
    if head.values("transfer-encoding") or head.values("content-length"):
        async for piece in body(head, reader, on_dropped):
            yield piece
        return
    while piece := await reader.read(PIECE):
        yield piece


async def body(head: Head, reader: asyncio.StreamReader, on_dropped: OnDropped) -> AsyncIterator[bytes]:
    """Yield a body, chunks with their framing. Raises PolicyRefusal when its end is in doubt."""
    length = body_length(head)
    if length is None:
        async for piece in _chunks(reader, on_dropped):
            yield piece
    else:
        async for piece in _exactly(reader, length):
            yield piece


def body_length(head: Head) -> int | None:
    """Return the length of the body, None if it is chunked. Raises PolicyRefusal if that is in doubt."""
    lengths, codings = head.values("content-length"), head.values("transfer-encoding")
    if (lengths and codings) or len(lengths) > 1 or len(codings) > 1:
        raise PolicyRefusal("a body with two lengths")
    if not codings:
        return _number(lengths[0], 10) if lengths else 0
    if codings[0].lower() != "chunked":
        raise PolicyRefusal(f"transfer coding {codings[0][:40]!r}: only chunked is passed on")
    return None


async def _chunks(reader: asyncio.StreamReader, on_dropped: OnDropped) -> AsyncIterator[bytes]:
    """Yield each chunk with a size line of our own; drop extensions and trailers."""
    while True:
        line = await _line(reader)
        size = _number(line.partition(b";")[0].strip().decode("latin-1"), 16)
        await on_dropped(len(line))
        yield b"%x\r\n" % size
        if not size:
            break
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise PolicyRefusal("a chunk longer than its stated size")
        yield b"\r\n"
    left = MAX_HEAD
    while (line := await _line(reader)) != b"\r\n":
        await on_dropped(len(line))
        left -= len(line)
        if left < 0:
            raise PolicyRefusal(f"more than {MAX_HEAD} bytes of trailers")
    yield b"\r\n"


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError:  # longer than the reader's buffer of MAX_HEAD
        raise PolicyRefusal(f"a line of a chunked body of more than {MAX_HEAD} bytes") from None
    if not line.endswith(b"\r\n"):
        raise PolicyRefusal("a line of a chunked body without its end")
    return line


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        piece = await reader.read(min(size, PIECE))
        if not piece:
            raise PolicyRefusal("the connection ended within a body")
        size -= len(piece)
        yield piece


def _number(text: str, base: int) -> int:
    digits = "0123456789abcdef"[:base]
    if not text or len(text) > 15 or any(char not in digits for char in text.lower()):
        raise PolicyRefusal(f"{text[:40]!r} is not a length")
    return int(text, base)
