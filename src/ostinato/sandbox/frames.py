"""The framing between a backend and the agent in its sandbox, both ways.

    frame = u32 length of header | u32 length of body | header, a JSON object | body, raw bytes

Requests carry `op`; an answer that failed carries `error` (an exception's name) and `message`. One request is
under way at a time.

    op        request, body             answer, body
    exec      command, timeout_s        exit_code, timed_out, duration_s, tree, pure; output
    read      path                      the bytes
    write     path; bytes
    list      path                      names
    files                               names
    state                               tree, pure
    changes                             files: [path, size or -1], …; their bytes, one after another
    apply     files; bytes, as above
    worker                              (starts the exam's worker on its own socket)

The first frame comes unasked: `{"ready": true}` or an error that says why there is no sandbox.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

_LENGTHS = struct.Struct(">II")
PREFIX = _LENGTHS.size


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    text = json.dumps(header).encode()
    return _LENGTHS.pack(len(text), len(body)) + text + body


def lengths(prefix: bytes) -> tuple[int, int]:
    """Bytes of header and body that follow a prefix of `PREFIX` bytes."""
    header, body = _LENGTHS.unpack(prefix)
    return header, body


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
