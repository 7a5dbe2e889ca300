"""The inbox: one file for each event, written whole or not at all, which the reporter takes in order."""

import fcntl
import json
import os
import stat
import sys
import time
from collections.abc import Mapping

from ostinato.edits.capture.repository_paths import RepositoryPaths, size_of, state_of

INBOX, PENDING, LOCK, ERRORS = "inbox", "pending", "reporter.lock", "errors.log"
LARGEST = 5 << 20
"""Bytes of the largest file that is followed."""
POINTERS = (
    b"version https://git-lfs.github.com/spec/v",
    b"version https://hawser.github.com/spec/v",
    b"/annex/objects/",
)
"""The first bytes of a file whose text lies elsewhere: in the large file storage, or in git-annex."""
MOST_ERRORS = 1 << 20

Record = Mapping[str, object]


def put(state: str, record: Record) -> str:
    """Add an event; return the path of its file."""
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    return write(os.path.join(state, INBOX, name), record)


def write(path: str, record: Record, *, sync: bool = True) -> str:
    """Write a file that is whole whenever it exists; with `sync` even after a power failure."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(json.dumps(record).encode())
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(part, path)
    return path


def waiting(state: str) -> list[str]:
    """Return the paths of the events that wait, oldest first."""
    folder = os.path.join(state, INBOX)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.endswith(".json")]


def content(path: str) -> tuple[str | None, str]:
    """Return the text of a file, and why it cannot be followed: empty when it can.

    The reasons are `missing`, `large`, `binary`, `lfs_pointer` and `unreadable`: what may not be read is not
    missing.
    """
    try:
        facts = os.lstat(path)
        if not stat.S_ISREG(facts.st_mode):
            return None, "missing"
        if facts.st_size > LARGEST:
            return None, "large"
        with open(path, "rb") as file:
            return text_of(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None, "missing"
    except OSError:
        return None, "unreadable"


def text_of(data: bytes) -> tuple[str | None, str]:
    """Decode bytes; return the same as `content`."""
    if len(data) > LARGEST:
        return None, "large"
    if data.startswith(POINTERS):
        return None, "lfs_pointer"
    if b"\0" in data:
        return None, "binary"
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return None, "binary"


class ReporterLock:
    """The lock of the one reporter: `with` returns whether it was free, and holds it if so."""

    def __init__(self, state: str) -> None:
        self._handle = os.open(os.path.join(state, LOCK), os.O_RDWR | os.O_CREAT, 0o600)

    def __enter__(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def wake(repo: RepositoryPaths) -> None:
    """Start a reporter that outlives this process, unless one runs, which watches the inbox."""
    with ReporterLock(state_of(repo)) as is_free:
        if not is_free:
            return
    command = [sys.executable, "-P", "-m", "ostinato.edits.report.reporter", repo.root]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    os.posix_spawn(sys.executable, command, clean, file_actions=null, setsid=True)


def complain(state: str, message: str) -> None:
    """Append a failure of ours to the error log, where it disturbs nobody."""
    path = os.path.join(state, ERRORS)
    os.makedirs(state, mode=0o700, exist_ok=True)
    fresh = os.O_TRUNC if size_of(path) > MOST_ERRORS else 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o600)
    with open(descriptor, "a", errors="backslashreplace") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {message}\n")
