"""The framing between a backend and the agent in its sandbox, both ways, many requests at a time.

    frame = magic | u32 length of header | u32 length of body | header, a JSON object | body, raw bytes

Every header carries the `id` of its request and the `generation` of the connection: after a restore or a fork
the backend says `hello` with a new one, and what either side still sends in an older one is dropped.
A request carries `op`; its answer the same `id`, or `error` (an exception's name), `message`.

    op        request, body                         answer, body
    hello     generation                            (in the new generation)
    run       command, timeout_s, stdin, window,    exit_code, timed_out, duration_s [, tree, pure];
              state                                 the output's end, without a window
    read      path                                  the bytes
    write     path; bytes
    list      path                                  names, see `pack_names`
    files                                           names, the same
    state                                           tree, pure
    changes                                         files, see `pack_files`
    apply     files, the same
    worker    variation                             (starts the exam's worker on its own socket)
    worker    variation, window                     (of a guest: it hears and tells as `run` does)
    pause, resume
    usage                                           cpu_s, memory_bytes, disk_bytes, processes
    pack                                            (what was written, as output: `sandbox.files.layer`)

With a `window`, `run` tells of itself before its answer, and hears more, under the same id:

    agent:    event output; bytes        at most `window` bytes that are not credited yet; of a command that
                                         has ended what still lies in its pipe, at most DRAIN bytes
              event taken, bytes         of the input; broken: nobody reads it any more
    backend:  op credit, bytes           the reader took so many
              op input; bytes            for its standard input, at its end without a body
              op signal, number

An agent may be in the hands of what it runs. So the backend knows for each of its requests how much may come
back (`Reader`'s `room`): a frame that announces more ends the sandbox before any of it is read, and a body
that nobody waits for is dropped as it comes.

The first frame comes unasked, with id 0: `{"ready": true}`, or an error that says why there is no sandbox.

So do connections that programs make at the door of a guest with a way out (`porter`, `egress.carried`), each
a `stream` with a number of its own. Both sides say the same, the backend as op `stream`, all with id 0:

    event opened               by the agent: a program is there
    event data; bytes          at most WINDOW bytes that the other side has not taken yet
    event taken, bytes         so many
    event end                  no more data from this side
    event close                behind the data, or by the agent: the program is gone
    event cut                  by the backend: at once
"""

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ostinato.sandbox.base import ChangesError, SandboxError
from ostinato.sandbox.protocol import entries

MAGIC = b"\0ost"
WINDOW = 1 << 18
"""Bytes of output that a command may be ahead of its reader, and of input ahead of the command."""
CHUNK = 1 << 16
SMALL = 1 << 16
"""Bytes of a header that an agent sends, and of a body where nothing larger is asked for."""
DRAIN = 1 << 20
"""The most that a pipe holds unless the machine's administrator allows more."""
MAX_NAMES = 16 * 2**20
MAX_FILES = 1 << 18
"""How many files may have changed."""
_JSON = json.JSONEncoder(separators=(",", ":"))
_PREFIX = struct.Struct(">4sII")
_MAX_HEADER, _MAX_BODY = 64 * 2**20, 1 << 30
_FILE = struct.Struct(">Iq")

Frame = tuple[dict[str, Any], bytes]
Room = Callable[[dict[str, Any]], int | None]
"""How many bytes may follow a header; None where nobody wants them."""


class FrameError(SandboxError):
    """Bytes that are no frame."""


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    text = _JSON.encode(header).encode()
    if len(text) > _MAX_HEADER:
        raise ChangesError(f"the names have {len(text)} bytes, a frame's header {_MAX_HEADER} at most")
    return _PREFIX.pack(MAGIC, len(text), len(body)) + text + body


class Reader:
    """Bytes in, frames out.

    `header` bounds a header, `room` the body behind one: more is a FrameError as soon as it is announced.
    Where `room` answers None the frame is skipped as it comes, and nothing of it is kept.

    With `seek`, what precedes the next frame is skipped: the rest of a frame that was cut by a snapshot, or
    what a console printed. Without, it is a FrameError.

    >>> reader = Reader(seek=True)
    >>> reader.feed(b"half a line" + pack({"id": 1}, b"body"))
    >>> reader.next()
    ({'id': 1}, b'body')
    >>> reader.next() is None
    True
    """

    def __init__(
        self, *, seek: bool = False, header: int = _MAX_HEADER, room: Room = lambda _: _MAX_BODY
    ) -> None:
        self._buffer = bytearray()
        self._seek = seek
        self._longest = header
        self._room = room
        self._begun: tuple[dict[str, Any], int] | None = None
        """A header, and how many bytes belong to it."""
        self._skipped = 0
        """Bytes of a body that nobody wants, and that are still to come."""

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Frame | None:
        """The next whole frame, None while there is none; raises FrameError."""
        while self._begun is not None or self._begin():
            if self._begun is None:
                continue
            header, size = self._begun
            if len(self._buffer) < size:
                return None
            body = bytes(memoryview(self._buffer)[:size])
            del self._buffer[:size]
            self._begun = None
            return header, body
        return None

    def _begin(self) -> bool:
        """Read a header, or skip a body; False when there is not enough for either."""
        if self._skipped:
            count = min(self._skipped, len(self._buffer))
            del self._buffer[:count]
            self._skipped -= count
            return not self._skipped
        if self._seek:
            self._skip()
        if len(self._buffer) < _PREFIX.size:
            return False
        magic, length, size = _PREFIX.unpack_from(self._buffer)
        if magic != MAGIC or length > self._longest:
            raise FrameError(f"not a frame: {bytes(self._buffer[: _PREFIX.size])!r}")
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return False
        header = _object(self._buffer[_PREFIX.size : end])
        room = self._room(header)
        if room is not None and size > room:
            raise FrameError(f"a frame with {size} bytes where {room} may come")
        del self._buffer[:end]
        self._skipped, self._begun = (size, None) if room is None else (0, (header, size))
        return True

    def _skip(self) -> None:
        """Up to the first magic, or to what may be the beginning of one."""
        start = self._buffer.find(MAGIC)
        if start < 0:
            tail = bytes(self._buffer[-len(MAGIC) + 1 :])
            kept = next((n for n in range(len(tail), 0, -1) if MAGIC.startswith(tail[-n:])), 0)
            start = len(self._buffer) - kept
        del self._buffer[:start]


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _object(text: bytearray) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise FrameError("a header that is no object")
    return found


def pack_names(names: Iterable[str]) -> bytes:
    """Paths, each with a NUL behind it."""
    return b"".join(_encoded(name) + b"\0" for name in names)


def unpack_names(body: bytes) -> list[str]:
    """The inverse of `pack_names`; raises FrameError."""
    *names, rest = body.split(b"\0")
    if rest or len(names) > MAX_FILES:
        raise FrameError("a list of names that is none, or too long")
    return [_decoded(name) for name in names]


def pack_files(files: Mapping[str, bytes | None]) -> bytes:
    """Paths, each behind its kind's mark, and contents; None, a file that is gone, has the size -1."""
    parts = []
    for path, data in files.items():
        name = entries.mark(data).encode() + _encoded(path)
        parts += [_FILE.pack(len(name), -1 if data is None else len(data)), name, data or b""]
    return b"".join(parts)


def unpack_files(body: bytes) -> dict[str, bytes | None]:
    """The inverse of `pack_files`; raises FrameError."""
    files: dict[str, bytes | None] = {}
    offset = 0
    while offset < len(body):
        if len(body) - offset < _FILE.size:
            raise FrameError("files that are cut short")
        length, size = _FILE.unpack_from(body, offset)
        middle = offset + _FILE.size + length
        offset = middle + max(size, 0)
        if offset > len(body) or size < -1 or len(files) >= MAX_FILES:
            raise FrameError("files that are cut short, or too many")
        kind = entries.KINDS.get(body[middle - length : middle - length + 1].decode("latin-1"))
        if kind is None:
            raise FrameError("a file of no kind")
        name = _decoded(body[middle - length + 1 : middle])
        files[name] = None if size < 0 else kind(body[middle:offset])
    return files


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _decoded(name: bytes) -> str:
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FrameError(f"a path that is none: {error}") from None
