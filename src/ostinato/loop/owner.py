"""Who owns a run folder: one process at a time, for as long as it lives.

`demo` and `serve` both write arms, start engines and hand out keys in the folder, so two of them would take
each other's users away. The lock is the kernel's: it ends with its process, however that ends.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOCK = "run.lock"


class OwnedError(ValueError):
    """Another process owns the folder; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The right to change a run folder; only `owned` makes one.

    >>> Owner(directory=Path("runs/demo")).lock
    PosixPath('runs/demo/run.lock')
    """

    directory: Path

    @property
    def lock(self) -> Path:
        return self.directory / LOCK


@contextmanager
def owned(directory: Path, doing: str) -> Iterator[Owner]:
    """Own `directory`, which is made where it is missing, until the block ends.

    `doing`: what to tell others who want it. Raises OwnedError when a process owns it already.
    """
    directory.mkdir(parents=True, exist_ok=True)
    owner = Owner(directory=directory)
    descriptor = os.open(owner.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, directory)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"ostinato {doing}, process {os.getpid()}".encode(), 0)
        yield owner
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        by = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
        raise OwnedError(
            f"{directory} is in use by {by}: stop that first, or name another folder with --directory"
        ) from None


def is_empty(directory: Path) -> bool:
    """Whether there is nothing but the lock."""
    with contextlib.suppress(FileNotFoundError):
        return all(path.name == LOCK for path in directory.iterdir())
    return True
