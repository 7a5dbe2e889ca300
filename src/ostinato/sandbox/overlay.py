"""What changed in a sandbox, read from the upper layer of its overlay.

The upper layer holds every file that was written, a character device 0:0 for what was deleted, a
directory marked opaque where one replaced another. Only those paths are compared with the pristine one.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ostinato.sandbox import tree

_OPAQUE = "user.overlay.opaque"
_NOT_A_FILE = b"\0a link or a device"


def changes(root: str, lower: str, upper: str) -> dict[str, bytes | None]:
    """Paths under `root` whose content differs from `lower`: their bytes, None when gone."""
    found: dict[str, bytes | None] = {}
    for path in sorted(set(_touched(lower, upper, ""))):
        now, before = tree.content(root, path), _pristine(lower, path)
        if now != before:
            found[path] = now
    return found


def _pristine(lower: str, path: str) -> bytes | None:
    """The bytes of a file in the lower layer, None when there is none; a link or device is neither."""
    parts = Path(path).parts
    if any(Path(lower, *parts[:end]).is_symlink() for end in range(1, len(parts))):
        return None
    place = Path(lower, path)
    if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
        return None
    return _NOT_A_FILE if place.is_symlink() or not place.is_file() else place.read_bytes()


def pure(upper: str, scratch: str) -> bool:
    """True when nothing outside the tree was written: no `.git` in the upper layer, nothing in `scratch`.

    What is mounted in `scratch` is a Python installed there, read-only.
    """
    left = (f"{scratch}/{name}" for name in os.listdir(scratch))  # noqa: PTH208
    return not os.path.lexists(f"{upper}/{tree.GIT}") and all(os.path.ismount(path) for path in left)


def _touched(lower: str, upper: str, prefix: str) -> Iterator[str]:
    with os.scandir(os.path.join(upper, prefix)) as entries:  # noqa: PTH118
        for entry in entries:
            path = prefix + entry.name
            if path == tree.GIT:
                continue
            yield path
            if not entry.is_dir(follow_symlinks=False):
                yield from _files_below(lower, path)
            else:
                if _is_opaque(entry.path):
                    yield from _files_below(lower, path)
                yield from _touched(lower, upper, path + "/")


def _files_below(lower: str, path: str) -> Iterator[str]:
    """The files of a pristine directory that was deleted or replaced."""
    start = Path(lower, path)
    if stat.S_ISDIR(start.lstat().st_mode) if os.path.lexists(start) else False:
        yield from (f"{path}/{name}" for name in tree.files(str(start)))


def _is_opaque(path: str) -> bool:
    try:
        return os.getxattr(path, _OPAQUE) == b"y"
    except OSError:
        return False  # no such attribute
