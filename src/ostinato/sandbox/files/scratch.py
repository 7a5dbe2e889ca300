"""Temporary directories that are removed even when their process is killed.

The process that makes one locks it. A directory that a killed process left behind is not locked any more, and
the next process of the same user that makes one removes it.
"""

import fcntl
import os
import re
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from ostinato.sandbox.files import tree

_PREFIX = "ostinato-sandbox-"
_OURS = re.compile(rf"{_PREFIX}[a-z]+-\w{{8}}")
_YOUNG_S = 2.0
"""Younger directories are left alone: their process may be about to lock them."""


class Scratch:
    """A fresh directory, removed with all that is in it by `close` or when Python ends.

    `kind` becomes a part of its name. Raises OSError.
    """

    def __init__(self, kind: str) -> None:
        sweep()
        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-")))
        self._end = weakref.finalize(self, _remove, self.path, _locked(self.path))

    def close(self) -> None:
        """Remove the directory; a second call does nothing."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def sweep() -> None:
    """Remove the directories that killed processes left behind, once in a process."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another process uses it, or removes it too
            if _OURS.fullmatch(directory.name) and _is_old_and_ours(directory.lstat()):
                _remove(directory, _locked(directory))


def _is_old_and_ours(status: os.stat_result) -> bool:
    old = status.st_mtime < time.time() - _YOUNG_S
    return old and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _remove(path: Path, lock: int) -> None:
    try:
        tree.remove(str(path))
    finally:
        os.close(lock)


def _locked(path: Path) -> int:
    """Lock a directory, return the descriptor; raises BlockingIOError when another process has the lock."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
