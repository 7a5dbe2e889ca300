"""Archives and directories of source code, read into a `SourceTree`; whatever they hold, nothing is run.

An archive is hostile: a path that climbs out, a link, a device or a bomb refuses the whole of it, by name. Of
a directory, and of a commit, an odd file costs only itself, and is counted with its reason.
"""

import os
import re
import stat
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO

from ostinato.mining.base import MiningError, SourceTree, repository_name

MAX_FILES = 5_000
MAX_BYTES = 64 * 2**20
MAX_FILE_BYTES = 8 * 2**20
LONGEST_NAME = 200
"""Bytes of one part of a path; file systems take 255, and what is written beside a file adds some."""
SKIPPED = frozenset({".git", "__pycache__", ".hg", ".svn", "node_modules", ".venv", ".tox"})
LICENCE = re.compile(r"^(licen[cs]e|copying|unlicense)[^/]*$", re.IGNORECASE)
LICENCES = {
    "Apache-2.0": r"Apache License\s+Version 2",
    "MIT": r"Permission is hereby granted, free of charge",
    "BSD": r"Redistribution and use in source and binary forms",
    "MPL-2.0": r"Mozilla Public License",
    "PSF-2.0": r"PYTHON SOFTWARE FOUNDATION LICENSE",
    "LGPL": r"GNU LESSER GENERAL PUBLIC LICENSE",
    "GPL": r"GNU GENERAL PUBLIC LICENSE",
    "ISC": r"Permission to use, copy, modify, and/or distribute",
    "Unlicense": r"free and unencumbered software",
    "CC0": r"CC0 1\.0",
}
COMPILED = (".so", ".pyd", ".dylib", ".dll")


def read_tree(path: Path) -> SourceTree:
    """Read a source archive (`.tar.*`, `.zip`) or a directory. Raises MiningError with the reason."""
    left_out = Counter[str]()
    files, stem = read_files(path, left_out)
    version = None if path.is_dir() else re.search(r"-(\d[\w.+!]*)$", stem)
    return checked_tree(stem, version[1] if version else "", files, left_out)


def read_files(path: Path, left_out: Counter[str] | None = None) -> tuple[dict[str, bytes], str]:
    """Return the files of an archive or a directory by path, and its name without an ending.

    `left_out` counts what is left out of a directory. Raises MiningError with the reason.
    """
    if path.is_dir():
        counts = Counter[str]() if left_out is None else left_out
        return dict(_directory(path.resolve(), counts)), path.resolve().name
    if not path.exists():
        what = f"{path} does not exist: name the folder of a repository, or an archive of one"
        raise MiningError("not there", path.name, what)
    try:
        files = dict(_zip(path) if zipfile.is_zipfile(path) else _tar(path))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise MiningError("unreadable archive", path.name, str(error)) from error
    return _without_top(files), re.sub(r"\.(tar(\.\w+)?|tgz|zip)$", "", path.name)


def newest(path: Path) -> str:
    """Return the day of the newest file in an archive, as 2026-03-01; empty for a directory."""
    if path.is_dir():
        return ""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as opened:
            return "{:04}-{:02}-{:02}".format(*max(member.date_time for member in opened.infolist())[:3])
    with tarfile.open(path, "r:*") as archive:
        return datetime.fromtimestamp(max(member.mtime for member in archive), UTC).date().isoformat()


def why_odd(path: str, size: int) -> str:
    """Return why a file of a directory or a commit is left out; empty for one that is taken."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "the name is no UTF-8"
    parts = path.split("/")
    if any(len(part.encode()) > LONGEST_NAME for part in parts) or not path.isprintable():
        return "no file system or list takes the name"
    if any(part.lower() == ".git" for part in parts):
        return "the name is git's own"
    return f"larger than {MAX_FILE_BYTES >> 20} MiB" if size > MAX_FILE_BYTES else ""


def checked_tree(
    name: str, version: str, files: dict[str, bytes], left_out: Mapping[str, int] = MappingProxyType({})
) -> SourceTree:
    """Return the tree of these files. Raises MiningError for compiled parts, no tests or no sources."""
    if compiled := [path for path in files if path.endswith(COMPILED)]:
        raise MiningError("compiled parts", name, compiled[0])
    tree = SourceTree(
        name=repository_name(name),
        version=version,
        files=files,
        licence=licence(files),
        left_out=left_out,
    )
    if not tree.tests:
        raise MiningError("no tests", name, "no test_*.py or *_test.py")
    if not tree.sources:
        raise MiningError("no sources", name, "no Python file outside of the tests")
    return tree


def licence(files: dict[str, bytes]) -> str:
    """Return the licence that a file in the root is the text of: its name, `other`, or `none`."""
    texts = [data.decode(errors="replace") for path, data in sorted(files.items()) if LICENCE.match(path)]
    for name, pattern in LICENCES.items():
        if any(re.search(pattern, text) for text in texts):
            return name
    return "other" if texts else "none"


def _without_top(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the one folder that all files of a source archive lie in."""
    tops = {path.partition("/")[0] for path in files}
    if len(tops) != 1 or any("/" not in path for path in files):
        return files
    return {path.partition("/")[2]: data for path, data in files.items()}


class _Budget:
    """The files and bytes that an archive may still bring; a member counts when named and when read."""

    def __init__(self, where: str) -> None:
        self._where, self._files, self._bytes = where, 2 * MAX_FILES, MAX_BYTES

    def read(self, path: str, stream: IO[bytes]) -> bytes:
        """Return the bytes of a file; a bomb is noticed before it is unpacked any further."""
        data = stream.read(MAX_FILE_BYTES + 1)
        self._bytes -= len(data)
        self.claim(path, len(data))
        return data

    def claim(self, path: str, size: int) -> None:
        """Count a file, whose header states `size`. Raises MiningError for a bomb."""
        self._files -= 1
        if size > MAX_FILE_BYTES or self._files < 0 or self._bytes < 0:
            raise MiningError(
                "bomb",
                self._where,
                f"{path} goes beyond {MAX_FILE_BYTES >> 20} MiB, or all beyond {MAX_BYTES >> 20} MiB or "
                f"{MAX_FILES} files",
            )


def _check_path(where: str, name: str) -> str | None:
    """Return the path of a member; None for one to leave out. Raises MiningError for one that climbs out."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise MiningError("path climbs out", where, repr(name))
    return None if SKIPPED.intersection(path.parts) else str(path)


def _tar(archive: Path) -> Iterator[tuple[str, bytes]]:
    budget = _Budget(archive.name)
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            path = _check_path(archive.name, member.name)
            budget.claim(member.name, member.size)
            if member.isdir() or path is None:
                continue
            if member.issym() or member.islnk():
                raise MiningError("link in archive", archive.name, f"{member.name!r} to {member.linkname!r}")
            stream = opened.extractfile(member) if member.isfile() else None
            if stream is None:
                raise MiningError("device in archive", archive.name, repr(member.name))
            yield path, budget.read(path, stream)


def _zip(archive: Path) -> Iterator[tuple[str, bytes]]:
    budget = _Budget(archive.name)
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            path = _check_path(archive.name, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.is_dir() or path is None:
                continue
            if kind == stat.S_IFLNK:
                raise MiningError("link in archive", archive.name, repr(member.filename))
            if kind not in {0, stat.S_IFREG}:
                raise MiningError("device in archive", archive.name, repr(member.filename))
            with opened.open(member) as stream:
                yield path, budget.read(path, stream)


def _directory(folder: Path, left_out: Counter[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a directory; `left_out` counts those that are left out."""
    budget = _Budget(folder.name)
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if SKIPPED.intersection(path.relative_to(folder).parts) or (path.is_dir() and not path.is_symlink()):
            continue
        facts = path.lstat()
        kind = "a link" if stat.S_ISLNK(facts.st_mode) else "" if stat.S_ISREG(facts.st_mode) else "no file"
        why = kind or why_odd(relative, facts.st_size)
        why = why or ("" if os.access(path, os.R_OK) else "it may not be read")
        if why:
            left_out[why] += 1
            continue
        with path.open("rb") as stream:
            yield relative, budget.read(relative, stream)
