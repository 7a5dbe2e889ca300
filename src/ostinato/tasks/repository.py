"""A git repository of one commit, written without git.

Starting `git` costs several milliseconds a command, and a practice run writes thousands of repositories.
Author, dates and index are fixed, so the same files make the same commit id and nothing about the machine
leaks in.
"""

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

AUTHOR = "ostinato <ostinato@localhost>"
DATE = "1767225600 +0000"
"""2026-01-01 00:00 UTC, in git's form."""
MESSAGE = "start"
CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
"""
REGULAR, FOLDER = 0o100644, 0o40000
COMMIT, TREE, BLOB = 1, 2, 3
NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}


@dataclass(frozen=True, slots=True)
class _Object:
    """One git object: its 20-byte id and its form in a pack."""

    identifier: bytes
    packed: bytes


def write_repository(directory: Path, files: Mapping[str, str | bytes]) -> str:
    """Write `files` (relative path -> content) and a `.git` with one commit; return the commit's id.

    Raises ValueError for a path that leads out of the repository or into `.git`, FileExistsError when the
    directory has a `.git` already.
    """
    wrong = [name for name in files if not is_inside(name)]
    if wrong:
        raise ValueError(f"files lie in the repository by plain relative paths, got {wrong}")
    git = directory / ".git"
    for folder in (git / "objects" / "pack", git / "refs" / "heads"):
        folder.mkdir(parents=True)
    contents = {
        name: data.encode() if isinstance(data := files[name], str) else data
        for name in sorted(files, key=str.encode)
    }
    blobs = {name: _blob(content) for name, content in contents.items()}
    trees: list[_Object] = []
    root = _tree(blobs, trees).identifier.hex()
    people = f"author {AUTHOR} {DATE}\ncommitter {AUTHOR} {DATE}\n"
    commit = _object(COMMIT, f"tree {root}\n{people}\n{MESSAGE}\n".encode())
    _write_pack(git / "objects" / "pack", {o.identifier: o for o in (commit, *trees, *blobs.values())})
    for name, content in contents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(CONFIG)
    (git / "refs" / "heads" / "main").write_text(commit.identifier.hex() + "\n")
    (git / "index").write_bytes(_index(blobs))
    return commit.identifier.hex()


def is_inside(name: str) -> bool:
    """Return whether a relative path stays within the repository, and out of `.git`."""
    parts = name.split("/")
    return not {"", ".", ".."}.intersection(parts) and parts[0].lower() != ".git" and "\0" not in name


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _object(kind: int, body: bytes) -> _Object:
    identifier = _sha1(b"%s %d\0" % (NAMES[kind], len(body)) + body)
    return _Object(identifier, _pack_header(kind, len(body)) + zlib.compress(body, 1))


@lru_cache(maxsize=256)
def _blob(content: bytes) -> _Object:
    return _object(BLOB, content)


def _tree(blobs: Mapping[str, _Object], made: list[_Object]) -> _Object:
    """Return the tree of these paths; it and those below it are added to `made`."""
    entries: dict[bytes, bytes] = {}
    below: dict[str, dict[str, _Object]] = {}
    for name, blob in blobs.items():
        folder, slash, rest = name.partition("/")
        if slash:
            below.setdefault(folder, {})[rest] = blob
        else:
            entries[name.encode()] = b"%o %s\0%s" % (REGULAR, name.encode(), blob.identifier)
    for folder, inner in below.items():
        tree = _tree(inner, made)
        entries[folder.encode() + b"/"] = b"%o %s\0%s" % (FOLDER, folder.encode(), tree.identifier)
    made.append(_object(TREE, b"".join(entries[name] for name in sorted(entries))))
    return made[-1]


def _pack_header(kind: int, size: int) -> bytes:
    """Return kind and size of an object: four bits of the size in the first byte, seven in each other."""
    current, size = kind << 4 | size & 15, size >> 4
    header = bytearray()
    while size:
        header.append(current | 128)
        current, size = size & 127, size >> 7
    header.append(current)
    return bytes(header)


def _write_pack(folder: Path, objects: Mapping[bytes, _Object]) -> None:
    """Write all objects as one pack with its index (version 2), not as a file and folder for each object."""
    pack = struct.pack(">4sII", b"PACK", 2, len(objects))
    offsets = {}
    for identifier, item in objects.items():
        offsets[identifier] = len(pack)
        pack += item.packed
    checksum = _sha1(pack)
    order = sorted(objects)
    fanout = [sum(identifier[0] <= first for identifier in order) for first in range(256)]
    checks = [zlib.crc32(objects[identifier].packed) for identifier in order]
    index = b"".join(
        [
            b"\xfftOc" + struct.pack(">I256I", 2, *fanout),
            *order,
            struct.pack(f">{len(order)}I", *checks),
            struct.pack(f">{len(order)}I", *(offsets[identifier] for identifier in order)),
            checksum,
        ]
    )
    (folder / f"pack-{checksum.hex()}.pack").write_bytes(pack + checksum)
    (folder / f"pack-{checksum.hex()}.idx").write_bytes(index + _sha1(index))


def _index(blobs: Mapping[str, _Object]) -> bytes:
    """Return the staging area, version 2. Times and sizes are 0, so git compares contents, even in copies."""
    body = bytearray(struct.pack(">4sII", b"DIRC", 2, len(blobs)))
    for text, blob in blobs.items():
        name = text.encode()
        entry = struct.pack(">10I20sH", 0, 0, 0, 0, 0, 0, REGULAR, 0, 0, 0, blob.identifier, len(name)) + name
        body += entry + b"\0" * (8 - len(entry) % 8)
    return bytes(body) + _sha1(bytes(body))
