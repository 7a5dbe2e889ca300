"""Temporary directories that do not outlive their process for long.

Whoever makes one locks it. What a process that was killed left behind is locked by nobody: the next process
of the same user that makes one removes it.
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
"""What is younger may be about to be locked."""


class Scratch:
    """A fresh directory of that `kind`, removed with all that is in it by `close`, or when Python ends.

    Raises OSError.
    """

    def __init__(self, kind: str) -> None:
        sweep()
        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-")))
        self._end = weakref.finalize(self, _remove, self.path, _locked(self.path))

    def close(self) -> None:
        """Nothing to do when it was called before."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def sweep() -> None:
    """Remove what others left behind, once in a process."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else sweeps, or uses it
            if _OURS.fullmatch(left.name) and _is_old(left.lstat()):
                _remove(left, _locked(left))


def _is_old(status: os.stat_result) -> bool:
    """And a directory of this user's."""
    old = status.st_mtime < time.time() - _YOUNG_S
    return old and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _remove(path: Path, lock: int) -> None:
    try:
        tree.remove(str(path))
    finally:
        os.close(lock)


def _locked(path: Path) -> int:
    """Raises BlockingIOError when another process has locked it."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
