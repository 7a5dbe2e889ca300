"""A layer: all that was written above a template, as a stream of bytes, for a fork.

    layer = entry, entry, …, end        entry = u32 length | JSON object | content of a file

An entry has an `area` (`repo` or `tmp`), a `path`, a `kind`, and what the kind needs. The kind `gone` is for
something of the template that was deleted; `opaque` marks a directory that hides the template's. The end
contains the digest of all before it, so that a layer which was cut or damaged is never unpacked.
"""

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.files.overlay import is_opaque
from ostinato.sandbox.protocol.frames import CHUNK

Entry = dict[str, Any]
_LENGTH = struct.Struct(">I")
OPAQUE = "user.overlay.opaque"
OVERLAY_PREFIXES = ("user.overlay.", "trusted.overlay.")
"""Extended attributes with these prefixes belong to the overlay file system itself."""
_KINDS = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe"}
HARD = "hard link"
MAX_RECORD = 4 * 2**20


def pack(areas: Mapping[str, str]) -> Iterator[bytes]:
    """Pack each area's directory, which is the upper layer of an overlay or one like it."""
    return _sealed(each for area, top in areas.items() for each in _tree(area, top))


def pack_paths(area: str, top: str, paths: list[str], gone: list[str]) -> Iterator[bytes]:
    """Pack only `paths` below `top`, with their parent directories, and an entry for each of `gone`."""
    parents = {parent for path in paths for parent in _parents(path)}
    records = [{"area": area, "path": path, "kind": "gone"} for path in gone]
    places, inodes = sorted(parents | set(paths)), dict[int, str]()

    def parts() -> Iterator[bytes]:
        yield from (_record(record) for record in records)
        for path in places:
            yield from _entry(area, path, f"{top}/{path}", inodes)

    return _sealed(parts())


def _parents(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != "":  # noqa: PTH120
        yield path


def _sealed(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts in chunks of about `CHUNK` bytes, and the end with their digest."""
    digest, chunk, size = hashlib.blake2b(digest_size=16), [], 0
    for part in parts:
        digest.update(part)
        chunk.append(part)
        size += len(part)
        if size >= CHUNK:
            yield b"".join(chunk)
            chunk, size = [], 0
    yield b"".join(chunk) + _record({"end": digest.hexdigest()})


def _record(entry: Entry) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def _tree(area: str, top: str) -> Iterator[bytes]:
    device, inodes, shut = os.stat(top).st_dev, dict[int, str](), list[tuple[str, int]]()  # noqa: PTH116
    waiting = [""]
    try:
        while waiting:
            prefix = waiting.pop()
            for name in sorted(_names(f"{top}/{prefix}", shut)):
                path, place = prefix + name, f"{top}/{prefix}{name}"
                status = os.lstat(place)
                if status.st_dev != device:
                    continue  # another file system is mounted there
                yield from _entry(area, path, place, inodes)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path + "/")
    finally:
        for place, mode in reversed(shut):
            os.chmod(place, mode)  # noqa: PTH101


def _names(place: str, shut: list[tuple[str, int]]) -> list[str]:
    """List a directory; one that its owner may not enter gets the right, and is noted in `shut`."""
    mode = stat.S_IMODE(os.stat(place).st_mode)  # noqa: PTH116
    if mode & 0o500 != 0o500 and os.getuid() != 0:
        os.chmod(place, mode | 0o700)  # noqa: PTH101
        shut.append((place, mode))
    return os.listdir(place)  # noqa: PTH208


def _entry(area: str, path: str, place: str, inodes: dict[int, str]) -> Iterator[bytes]:
    status = os.lstat(place)
    kind = "gone" if _is_whiteout(status) else _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return  # a socket: no process listens to it in a copy
    record: Entry = {"area": area, "path": path, "kind": kind}
    if kind == "gone":
        yield _record(record)
        return
    record |= {"mode": stat.S_IMODE(status.st_mode), "mtime": status.st_mtime_ns}
    if kind == "link":
        yield _record({**record, "to": os.readlink(place)})  # noqa: PTH115
    elif kind == "file" and (first := inodes.setdefault(status.st_ino, path)) != path:
        yield _record({**record, "kind": HARD, "to": first})
    else:
        with _readable(place) if kind != "pipe" else nullcontext():
            yield from _with_content(record | _attributes(place, kind), place)


def _with_content(record: Entry, place: str) -> Iterator[bytes]:
    if record["kind"] != "file":
        yield _record(record)
        return
    with open(place, "rb", buffering=0) as file:  # noqa: PTH123
        size = os.fstat(file.fileno()).st_size
        yield _record({**record, "size": size})
        while size > 0:
            data = file.read(min(size, CHUNK))
            if not data:
                raise SandboxError(f"{record['path']!r} shrank while it was packed: pause the sandbox first")
            size -= len(data)
            yield data


def _attributes(place: str, kind: str) -> Entry:
    if kind == "pipe":
        return {}
    names = os.listxattr(place)
    own = {name: os.getxattr(place, name).hex() for name in names if not name.startswith(OVERLAY_PREFIXES)}
    opaque = kind == "directory" and is_opaque(place)
    return ({"attributes": own} if own else {}) | ({"opaque": True} if opaque else {})


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


@contextmanager
def _readable(place: str) -> Iterator[None]:
    """Let the owner read what its mode forbids, for the time of the context."""
    mode = stat.S_IMODE(os.lstat(place).st_mode)
    wanted = mode | (0o700 if os.path.isdir(place) else 0o400)  # noqa: PTH112
    if wanted == mode or os.getuid() == 0:
        yield
        return
    os.chmod(place, wanted)  # noqa: PTH101
    try:
        yield
    finally:
        os.chmod(place, mode)  # noqa: PTH101


def read_record(file: int, offset: int) -> tuple[Entry, int]:
    (length,) = _LENGTH.unpack(_exactly(file, offset, _LENGTH.size))
    if length > MAX_RECORD:
        raise ValueError(f"an entry of {length} bytes")
    record: Entry = json.loads(_exactly(file, offset + _LENGTH.size, length))
    size = record.get("size", 0)
    if type(size) is not int or size < 0:
        raise ValueError(f"an entry of size {size!r:.40}")
    return record, offset + _LENGTH.size + length


def pieces(file: int, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        piece = _exactly(file, offset, min(CHUNK, end - offset))
        yield piece
        offset += len(piece)


def _exactly(file: int, offset: int, count: int) -> bytes:
    data = os.pread(file, count, offset)
    if len(data) != count:
        raise SandboxError("the layer is cut short: fork again")
    return data


def check(file: int) -> None:
    """Check by the digest that the layer in an open file is whole; raises SandboxError if it is not."""
    digest, offset = hashlib.blake2b(digest_size=16), 0
    size = os.fstat(file).st_size
    try:
        while True:
            record, after = read_record(file, offset)
            if "end" in record:
                break
            for start in range(offset, end := after + record.get("size", 0), CHUNK):
                digest.update(_exactly(file, start, min(CHUNK, end - start)))
            offset = end
    except (ValueError, AttributeError, TypeError, MemoryError, RecursionError) as error:
        raise SandboxError(f"the layer is damaged ({error}): fork again") from error
    if record["end"] != digest.hexdigest() or after != size:
        raise SandboxError("the layer is damaged (its digest differs): fork again")
