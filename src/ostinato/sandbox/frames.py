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
    list      path                                  names
    files                                           names
    state                                           tree, pure
    changes                                         files: [path, size or -1], …; their bytes
    apply     files; bytes, as above
    worker                                          (starts the exam's worker on its own socket)
    pause, resume
    usage                                           cpu_s, memory_bytes, disk_bytes, processes
    pack                                            (what was written, as output: `ostinato.sandbox.layer`)

With a `window`, `run` tells of itself before its answer, and hears more, under the same id:

    agent:    event output; bytes        at most `window` bytes that are not credited yet
              event taken, bytes         of the input; broken: nobody reads it any more
    backend:  op credit, bytes           the reader took so many
              op input; bytes            for its standard input, at its end without a body
              op signal, number

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
from collections.abc import Mapping
from typing import Any

from ostinato.sandbox.base import SandboxError

MAGIC = b"\0ost"
WINDOW = 1 << 18
"""Bytes of output that a command may be ahead of its reader, and of input ahead of the command."""
CHUNK = 1 << 16
_JSON = json.JSONEncoder(separators=(",", ":"))
_PREFIX = struct.Struct(">4sII")
_MAX_HEADER, _MAX_BODY = 64 * 2**20, 1 << 30

Frame = tuple[dict[str, Any], bytes]


class FrameError(SandboxError):
    """Bytes that are no frame."""


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    text = _JSON.encode(header).encode()
    return _PREFIX.pack(MAGIC, len(text), len(body)) + text + body


class Reader:
    """Bytes in, frames out.

    With `seek`, what precedes the next frame is skipped: the rest of a frame that was cut by a snapshot, or
    what a console printed. Without, it is a FrameError.

    >>> reader = Reader(seek=True)
    >>> reader.feed(b"half a line" + pack({"id": 1}, b"body"))
    >>> reader.next()
    ({'id': 1}, b'body')
    >>> reader.next() is None
    True
    """

    def __init__(self, *, seek: bool = False) -> None:
        self._buffer = bytearray()
        self._seek = seek

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Frame | None:
        """The next whole frame, None while there is none; raises FrameError."""
        if self._seek:
            self._skip()
        if len(self._buffer) < _PREFIX.size:
            return None
        magic, header, body = _PREFIX.unpack_from(self._buffer)
        if magic != MAGIC or header > _MAX_HEADER or body > _MAX_BODY:
            raise FrameError(f"not a frame: {bytes(self._buffer[: _PREFIX.size])!r}")
        middle, end = _PREFIX.size + header, _PREFIX.size + header + body
        if len(self._buffer) < end:
            return None
        frame = json.loads(self._buffer[_PREFIX.size : middle]), bytes(self._buffer[middle:end])
        del self._buffer[:end]
        return frame

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


def pack_files(files: Mapping[str, bytes | None]) -> tuple[list[tuple[str, int]], bytes]:
    """Paths with their sizes (-1: deleted), and the contents one after another."""
    table = [(path, -1 if data is None else len(data)) for path, data in files.items()]
    return table, b"".join(data for data in files.values() if data is not None)


def unpack_files(table: list[tuple[str, int]], body: bytes) -> dict[str, bytes | None]:
    """The inverse of `pack_files`."""
    files: dict[str, bytes | None] = {}
    offset = 0
    for path, size in table:
        files[path] = None if size < 0 else body[offset : offset + size]
        offset += max(size, 0)
    return files
