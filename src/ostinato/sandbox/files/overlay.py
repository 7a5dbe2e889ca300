"""Finds the changes in a sandbox by reading the upper layer of its overlay.

The upper layer holds every file that was written, a character device 0:0 for each that was deleted, and a
directory marked opaque where one replaced another. Only these paths are compared with the pristine ones.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ostinato.sandbox.files import tree
from ostinato.sandbox.protocol.entries import EmptyDirectory

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
"""The attribute of an overlay in a user namespace, and of one that was mounted with every right."""
_NOT_A_FILE = b"\0nothing to carry"
"""Stands for something in the lower layer that changes cannot contain, and so differs from all content."""


def changes(lower: str, upper: str, most: int) -> dict[str, bytes | None]:
    """Return the paths whose content differs from the pristine `lower`, with their bytes, None when deleted.

    Raises ChangesError when the content has more than `most` bytes; holes in files count. Content is read
    from `upper`, where every file is whole. A path is never resolved, so neither links nor a depth that a
    command made cost more than reading the directories.
    """
    now = tree.bounded(_touched(lower, upper), most)
    return {path: now[path] for path in sorted(now) if not _same(now[path], _pristine(lower, path))}


def _same(now: bytes | None, before: bytes | None) -> bool:
    return type(now) is type(before) and now == before


def _pristine(lower: str, path: str) -> bytes | None:
    """Return the content of a file or link in the lower layer, None when there is none."""
    *above, name = path.split("/")
    folder = lower
    for part in above:  # one at a time: it stops where the lower layer ends, however deep the upper one is
        folder = f"{folder}/{part}"
        if _kind(folder) != stat.S_IFDIR:
            return None
    kind = _kind(f"{folder}/{name}")
    if kind is None or kind == stat.S_IFDIR:
        return None
    content = tree.read_for_changes(f"{folder}/{name}")
    return _NOT_A_FILE if content is None else content


def _kind(path: str) -> int | None:
    """Return the file type at a path, links not followed; None when nothing is there."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return None


def pure(upper: str, scratch: str) -> bool:
    """Return True when nothing outside the tree was written: neither `.git` nor anything in `scratch`.

    Mounts in `scratch` do not count: they are a Python that is installed there, read-only.
    """
    paths = (f"{scratch}/{name}" for name in os.listdir(scratch))  # noqa: PTH208
    return not os.path.lexists(f"{upper}/{tree.GIT}") and all(os.path.ismount(path) for path in paths)


def _touched(lower: str, upper: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield every path that may differ, with its content now; a later item replaces an earlier one."""
    start = len(upper) + 1
    waiting = [entry for entry in tree.inside(upper) or () if entry.name != tree.GIT]
    while waiting:
        entry = waiting.pop()
        path, is_directory = entry.path[start:], entry.is_dir(follow_symlinks=False)
        below = tree.inside(entry.path) if is_directory else None
        if below is None or is_opaque(entry.path):
            yield from ((deleted, None) for deleted in _files_below(lower, path))
        if is_directory:
            yield path, EmptyDirectory() if below == [] and _kind(f"{lower}/{path}") != stat.S_IFDIR else None
        else:
            yield path, tree.read_for_changes(entry.path)
        waiting += below or ()


def _files_below(lower: str, path: str) -> Iterator[str]:
    """Yield the files of a pristine directory that was deleted or replaced."""
    start = Path(lower, path)
    if stat.S_ISDIR(start.lstat().st_mode) if os.path.lexists(start) else False:
        yield from (f"{path}/{name}" for name in tree.files(str(start)))


def is_opaque(path: str) -> bool:
    names = os.listxattr(path, follow_symlinks=False)
    return any(name in names and os.getxattr(path, name) == b"y" for name in _OPAQUE)
