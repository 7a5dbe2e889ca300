"""A git repository of one commit, written without git.

Starting `git` costs several milliseconds a command; a practice run writes thousands of repositories. Author,
dates and the index are fixed, so the same files give the same commit id and nothing of the machine leaks in.
"""

import hashlib
import struct
import zlib
from collections.abc import Mapping
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


def write_repository(directory: Path, files: Mapping[str, str]) -> str:
    """Write `files` (name -> text, no folders) and `.git` with one commit of them; returns the commit's id.

    Raises ValueError for a name with a slash, FileExistsError when the directory has a `.git` already.
    """
    nested = [name for name in files if "/" in name]
    if nested:
        raise ValueError(f"files of a pebble lie in the root of its repository, got {nested}")
    git = directory / ".git"
    for folder in (git / "objects", git / "refs" / "heads"):
        folder.mkdir(parents=True)
    blobs = {name: _blob(files[name]) for name in sorted(files)}
    tree = _object("tree", b"".join(b"%o %s\0%s" % (REGULAR, n.encode(), b[0]) for n, b in blobs.items()))
    commit = _object("commit", _commit_text(tree[0]))
    for identifier, data in {tree, commit, *blobs.values()}:
        _store(git, identifier, data)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(CONFIG)
    (git / "refs" / "heads" / "main").write_text(commit[0].hex() + "\n")
    (git / "index").write_bytes(_index({name: blob[0] for name, blob in blobs.items()}))
    return commit[0].hex()


def _object(kind: str, body: bytes) -> tuple[bytes, bytes]:
    """(20-byte id, compressed bytes) of a loose object."""
    data = f"{kind} {len(body)}\0".encode() + body
    return hashlib.sha1(data, usedforsecurity=False).digest(), zlib.compress(data, 1)


@lru_cache(maxsize=256)
def _blob(text: str) -> tuple[bytes, bytes]:
    return _object("blob", text.encode())


def _commit_text(tree: bytes) -> bytes:
    return f"tree {tree.hex()}\nauthor {AUTHOR} {DATE}\ncommitter {AUTHOR} {DATE}\n\n{MESSAGE}\n".encode()


def _store(git: Path, identifier: bytes, data: bytes) -> None:
    name = identifier.hex()
    folder = git / "objects" / name[:2]
    folder.mkdir(exist_ok=True)
    (folder / name[2:]).write_bytes(data)


def _index(blobs: Mapping[str, bytes]) -> bytes:
    """The staging area, version 2. Times and sizes are zero: git then compares contents, also in a copy."""
    entries = b"".join(_index_entry(name.encode(), identifier) for name, identifier in blobs.items())
    body = struct.pack(">4sII", b"DIRC", 2, len(blobs)) + entries
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _index_entry(name: bytes, identifier: bytes) -> bytes:
    entry = struct.pack(">10I20sH", 0, 0, 0, 0, 0, 0, REGULAR, 0, 0, 0, identifier, len(name)) + name
    return entry + b"\0" * (8 - len(entry) % 8)
