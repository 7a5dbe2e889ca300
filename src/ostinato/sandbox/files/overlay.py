"""What changed in a sandbox, read from the upper layer of its overlay.

The upper layer holds every file that was written, a character device 0:0 for what was deleted, a
directory marked opaque where one replaced another. Only those paths are compared with the pristine one.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ostinato.sandbox.files import tree
from ostinato.sandbox.protocol.entries import EmptyDirectory

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
"""The one of an overlay in a user namespace, and the one of an overlay mounted with every right."""
_NOT_A_FILE = b"\0nothing to carry"


def changes(lower: str, upper: str, most: int) -> dict[str, bytes | None]:
    """Relative paths whose content differs from the pristine `lower`: their bytes, None when gone.

    Raises ChangesError when what is there now has more than `most` bytes: holes in files count.

    What is now there is read from `upper`, where every file is whole: a path is never resolved, so neither a
    link nor a depth that a command made costs more than a look.
    """
    now = tree.bounded(_touched(lower, upper), most)
    return {path: now[path] for path in sorted(now) if not _same(now[path], _pristine(lower, path))}


def _same(now: bytes | None, before: bytes | None) -> bool:
    return type(now) is type(before) and now == before


def _pristine(lower: str, path: str) -> bytes | None:
    """A file or link in the lower layer, None when there is none."""
    *above, name = path.split("/")
    folder = lower
    for part in above:  # one at a time: it ends where the lower layer does, however deep the upper one is
        folder = f"{folder}/{part}"
        if _kind(folder) != stat.S_IFDIR:
            return None
    kind = _kind(f"{folder}/{name}")
    if kind is None or kind == stat.S_IFDIR:
        return None
    found = tree.grab(f"{folder}/{name}")
    return _NOT_A_FILE if found is None else found


def _kind(path: str) -> int | None:
    """What lies there itself, a link not followed; None for nothing."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return None


def pure(upper: str, scratch: str) -> bool:
    """True when nothing outside the tree was written: no `.git` in the upper layer, nothing in `scratch`.

    What is mounted in `scratch` is a Python installed there, read-only.
    """
    left = (f"{scratch}/{name}" for name in os.listdir(scratch))  # noqa: PTH208
    return not os.path.lexists(f"{upper}/{tree.GIT}") and all(os.path.ismount(path) for path in left)


def _touched(lower: str, upper: str) -> Iterator[tuple[str, bytes | None]]:
    """Every path that may differ, with what is there now; a later one replaces an earlier one."""
    start = len(upper) + 1
    waiting = [entry for entry in tree.inside(upper) or () if entry.name != tree.GIT]
    while waiting:
        entry = waiting.pop()
        path, is_directory = entry.path[start:], entry.is_dir(follow_symlinks=False)
        below = tree.inside(entry.path) if is_directory else None
        if below is None or is_opaque(entry.path):
            yield from ((gone, None) for gone in _files_below(lower, path))
        if is_directory:
            yield path, EmptyDirectory() if below == [] and _kind(f"{lower}/{path}") != stat.S_IFDIR else None
        else:
            yield path, tree.grab(entry.path)
        waiting += below or ()


def _files_below(lower: str, path: str) -> Iterator[str]:
    """The files of a pristine directory that was deleted or replaced."""
    start = Path(lower, path)
    if stat.S_ISDIR(start.lstat().st_mode) if os.path.lexists(start) else False:
        yield from (f"{path}/{name}" for name in tree.files(str(start)))


def is_opaque(path: str) -> bool:
    names = os.listxattr(path, follow_symlinks=False)
    return any(name in names and os.getxattr(path, name) == b"y" for name in _OPAQUE)
