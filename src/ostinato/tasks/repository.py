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
REGULAR = 0o100644
COMMIT, TREE, BLOB = 1, 2, 3
NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}


@dataclass(frozen=True, slots=True)
class _Object:
    """One git object: its 20-byte id and its form in a pack."""

    identifier: bytes
    packed: bytes


def write_repository(directory: Path, files: Mapping[str, str]) -> str:
    """Write `files` (name -> text, no folders) and a `.git` with one commit of them; return the commit's id.

    Raises ValueError for a name with a slash, FileExistsError when the directory has a `.git` already.
    """
    nested = [name for name in files if "/" in name]
    if nested:
        raise ValueError(f"files of a pebble lie in the root of its repository, got {nested}")
    git = directory / ".git"
    for folder in (git / "objects" / "pack", git / "refs" / "heads"):
        folder.mkdir(parents=True)
    blobs = {name: _blob(files[name]) for name in sorted(files)}
    tree = _object(TREE, b"".join(_tree_entry(name, blob) for name, blob in blobs.items()))
    commit = _object(COMMIT, _commit_text(tree))
    _write_pack(git / "objects" / "pack", {o.identifier: o for o in (commit, tree, *blobs.values())})
    for name, text in files.items():
        (directory / name).write_bytes(text.encode())
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(CONFIG)
    (git / "refs" / "heads" / "main").write_text(commit.identifier.hex() + "\n")
    (git / "index").write_bytes(_index(blobs))
    return commit.identifier.hex()


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _object(kind: int, body: bytes) -> _Object:
    identifier = _sha1(b"%s %d\0" % (NAMES[kind], len(body)) + body)
    return _Object(identifier, _pack_header(kind, len(body)) + zlib.compress(body, 1))


@lru_cache(maxsize=256)
def _blob(text: str) -> _Object:
    return _object(BLOB, text.encode())


def _tree_entry(name: str, blob: _Object) -> bytes:
    return b"%o %s\0%s" % (REGULAR, name.encode(), blob.identifier)


def _commit_text(tree: _Object) -> bytes:
    people = f"author {AUTHOR} {DATE}\ncommitter {AUTHOR} {DATE}\n"
    return f"tree {tree.identifier.hex()}\n{people}\n{MESSAGE}\n".encode()


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
    entries = b"".join(_index_entry(name.encode(), blob) for name, blob in blobs.items())
    body = struct.pack(">4sII", b"DIRC", 2, len(blobs)) + entries
    return body + _sha1(body)


def _index_entry(name: bytes, blob: _Object) -> bytes:
    entry = struct.pack(">10I20sH", 0, 0, 0, 0, 0, 0, REGULAR, 0, 0, 0, blob.identifier, len(name)) + name
    return entry + b"\0" * (8 - len(entry) % 8)
