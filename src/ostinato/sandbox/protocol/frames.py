"""The framing between a backend and the agent in its sandbox, both ways, many requests at a time.

    frame = magic | u32 length of header | u32 length of body | header, a JSON object | body, raw bytes

Every header carries the `id` of its request. A request carries `op`; its response the same `id`, or also
`error` (an exception's name) and `message`.

    op        request; body                         response; body
    hello                                           (its response shows that the agent lives)
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
    worker    variation, window                     (in a container: with the events of `run`)
    pause, resume
    pack                                            (written files, as output: `sandbox.files.layer`)

With a `window`, both sides send more frames under the id of `run`, before its response:

    agent:    event output; bytes        at most `window` bytes ahead of the credit; once the command has
                                         ended, the rest of its pipe, at most DRAIN bytes
              event taken, bytes         so many bytes of input were taken; `broken`: the input was closed
    backend:  op credit, bytes           the reader took so many bytes of output
              op input; bytes            standard input; an empty body closes it
              op signal, number

An agent may be controlled by the code that it runs. So the backend knows how much each of its requests may
bring back (`max_body` of `FrameReader`): a frame that announces more ends the sandbox before its body is
read, and a frame that nothing waits for is dropped as it comes.

The agent sends its first frame without a request, with id 0: `{"ready": true}`, or an error with the reason
why there is no sandbox.

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
"""The most bytes that a command's output may be ahead of its reader, and its input ahead of the command."""
CHUNK = 1 << 16
SMALL = 1 << 16
"""The most bytes of a header that an agent sends, and of a body for which no other bound is given."""
DRAIN = 1 << 20
"""The most bytes that a pipe holds, unless the machine's administrator allows more."""
MAX_NAMES = 16 * 2**20
MAX_FILES = 1 << 18
"""The most files that may have changed."""
_JSON = json.JSONEncoder(separators=(",", ":"))
_PREFIX = struct.Struct(">4sII")
_MAX_HEADER, _MAX_BODY = 64 * 2**20, 1 << 30
_FILE = struct.Struct(">Iq")

Frame = tuple[dict[str, Any], bytes]
MaxBody = Callable[[dict[str, Any]], int | None]
"""Returns how many bytes may follow a header; None drops the frame."""


class FrameError(SandboxError):
    """Bytes that are not a valid frame."""


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    text = _JSON.encode(header).encode()
    if len(text) > _MAX_HEADER:
        raise ChangesError(f"the names have {len(text)} bytes, a frame's header {_MAX_HEADER} at most")
    return _PREFIX.pack(MAGIC, len(text), len(body)) + text + body


class FrameReader:
    """Bytes in, frames out.

    `max_header` bounds a header and `max_body` the body behind one: more is a FrameError as soon as it is
    announced. Where `max_body` returns None the frame is skipped as it comes, and nothing of it is kept.

    >>> reader = FrameReader()
    >>> reader.feed(pack({"id": 1}, b"body"))
    >>> reader.next()
    ({'id': 1}, b'body')
    >>> reader.next() is None
    True
    """

    def __init__(self, *, max_header: int = _MAX_HEADER, max_body: MaxBody = lambda _: _MAX_BODY) -> None:
        self._buffer = bytearray()
        self._max_header = max_header
        self._max_body = max_body
        self._begun: tuple[dict[str, Any], int] | None = None
        """A header that has come, and the size of its body."""
        self._to_skip = 0
        """Bytes of a dropped body that are still to come."""

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next whole frame, None while there is none; raises FrameError."""
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
        """Read a header, or skip a body; return False when the buffer has not enough for either."""
        if self._to_skip:
            count = min(self._to_skip, len(self._buffer))
            del self._buffer[:count]
            self._to_skip -= count
            return not self._to_skip
        if len(self._buffer) < _PREFIX.size:
            return False
        magic, length, size = _PREFIX.unpack_from(self._buffer)
        if magic != MAGIC or length > self._max_header:
            raise FrameError(f"not a frame: {bytes(self._buffer[: _PREFIX.size])!r}")
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return False
        header = _object(self._buffer[_PREFIX.size : end])
        most = self._max_body(header)
        if most is not None and size > most:
            raise FrameError(f"a frame has {size} bytes where at most {most} are allowed")
        del self._buffer[:end]
        self._to_skip, self._begun = (size, None) if most is None else (0, (header, size))
        return True


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _object(text: bytearray) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError("a header is not a JSON object")
    return header


def pack_names(names: Iterable[str]) -> bytes:
    """Return the paths, each with a NUL behind it."""
    return b"".join(_encoded(name) + b"\0" for name in names)


def unpack_names(body: bytes) -> list[str]:
    """Return the paths that `pack_names` packed; raises FrameError."""
    *names, rest = body.split(b"\0")
    if rest or len(names) > MAX_FILES:
        raise FrameError("a list of names is cut short, or too long")
    return [_decoded(name) for name in names]


def pack_files(files: Mapping[str, bytes | None]) -> bytes:
    """Return paths, each behind the mark of its kind, with contents; a deleted file has the size -1."""
    parts = []
    for path, data in files.items():
        name = entries.mark(data).encode() + _encoded(path)
        parts += [_FILE.pack(len(name), -1 if data is None else len(data)), name, data or b""]
    return b"".join(parts)


def unpack_files(body: bytes) -> dict[str, bytes | None]:
    """Return the files that `pack_files` packed; raises FrameError."""
    files: dict[str, bytes | None] = {}
    offset = 0
    while offset < len(body):
        if len(body) - offset < _FILE.size:
            raise FrameError("a list of files is cut short")
        length, size = _FILE.unpack_from(body, offset)
        middle = offset + _FILE.size + length
        offset = middle + max(size, 0)
        if offset > len(body) or size < -1 or len(files) >= MAX_FILES:
            raise FrameError("a list of files is cut short, or too long")
        kind = entries.KINDS.get(body[middle - length : middle - length + 1].decode("latin-1"))
        if kind is None:
            raise FrameError("a file has an unknown kind")
        name = _decoded(body[middle - length + 1 : middle])
        files[name] = None if size < 0 else kind(body[middle:offset])
    return files


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _decoded(name: bytes) -> str:
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FrameError(f"a path is not UTF-8: {error}") from None
