"""Memory of a sandbox as a whole, where this user may make cgroups (version 1 or 2).

    <the runner's own group>/ostinato-<pid of the runner>-<random>/<number of a child>

The groups of one zygote lie in one directory, which it knows only as an open descriptor. A child enters its
own before anything else and cannot leave it: it sees no cgroup file system. (The number of processes is
bounded by each sandbox's own namespaces, see `layout`.)
"""

import itertools
import logging
import os
import secrets
import signal
import time
from collections import deque
from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "ostinato-"
_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
_IDLE_BYTES = 2 << 20
_MOST_LEFT = 256
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_BUSY_TRIES, _BUSY_PAUSE_S = 100, 0.005
_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class Groups:
    """The groups below one open directory. `version`: of cgroups, 1 or 2."""

    def __init__(self, version: int, directory: int) -> None:
        self.version = version
        self.directory = directory
        self._numbers = itertools.count(1)
        self._left: deque[str] = deque()

    def take(self) -> str:
        """The name of a group for a new child: one that was left, if nothing of that is in it any more.

        To make and remove one costs as much as all other namespaces but the network's.
        """
        while self._left:
            name = self._left.popleft()
            if self._is_idle(name):
                return name
            self._remove(name)
        name = str(next(self._numbers))
        os.mkdir(name, dir_fd=self.directory)
        return name

    def enter(self, name: str) -> None:
        """Move this process into a group."""
        self._write(f"{name}/cgroup.procs", 0)

    def limit(self, name: str, memory_bytes: int) -> None:
        """Bound the memory of a group, files that it wrote to memory included."""
        self._write(f"{name}/{_LIMIT[self.version]}", memory_bytes)

    def leave(self, name: str) -> None:
        """The child of a group has ended: another may have it."""
        self._left.append(name)
        if len(self._left) > _MOST_LEFT:
            self._remove(self._left.popleft())

    def _is_idle(self, name: str) -> bool:
        used = int(self._read(f"{name}/{_USED[self.version]}"))
        return used <= _IDLE_BYTES and not self._read(f"{name}/cgroup.procs")

    def _remove(self, name: str) -> None:
        """The kernel says busy for a moment after the last process has ended."""
        for _ in range(_BUSY_TRIES):
            try:
                os.rmdir(name, dir_fd=self.directory)
                return
            except OSError:
                time.sleep(_BUSY_PAUSE_S)

    def _read(self, path: str) -> bytes:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.directory)
        try:
            return os.read(file, 64)
        finally:
            os.close(file)

    def _write(self, path: str, value: int) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.directory)
        try:
            os.write(file, str(value).encode())
        finally:
            os.close(file)


class Room(Groups):
    """A fresh directory for the groups of one zygote."""

    def __init__(self, version: int, above: Path) -> None:
        self._path = above / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self._path.mkdir()
        super().__init__(version, os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        """End and remove all, once the zygote has ended; what the kernel does not let go is logged."""
        deadline = time.monotonic() + _CLOSE_S
        while not self._cleared() and time.monotonic() < deadline:
            time.sleep(_BUSY_PAUSE_S)
        os.close(self.directory)
        if self._path.exists():
            _log.warning("%s is still in use after %g s: remove it by hand", self._path, _CLOSE_S)

    def _cleared(self) -> bool:
        """One try. A child of a zygote that was killed may live, or be making its group, until it notices."""
        with suppress(FileNotFoundError):
            for child in [path for path in self._path.iterdir() if path.is_dir()]:
                _end(child)
        with suppress(OSError):
            self._path.rmdir()
        return not self._path.exists()


def _end(group: Path) -> None:
    with suppress(OSError):  # gone already, or busy until those that were killed have ended
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            if pid:  # 0 is one that this pid namespace cannot see; to `kill` it is our own process group
                os.kill(pid, signal.SIGKILL)
        group.rmdir()


def room() -> Room | None:
    """None where this user has no directory that works. Removes what runners that are gone left behind."""
    above = usable()
    if above is None:
        return None
    version, place = above
    _sweep(place)
    found = Room(version, place)
    if version == 2:
        (found._path / "cgroup.subtree_control").write_text("+memory")
    return found


@cache
def usable() -> tuple[int, Path] | None:
    """The version that works here and the group to work in, tried once."""
    for version, place in ((1, _first_version()), (2, _second_version())):
        if place is not None and _works(version, place):
            return version, place
    return None


def _works(version: int, place: Path) -> bool:
    try:
        tried = Room(version, place)
    except OSError:
        return False
    try:
        if version == 2:
            (tried._path / "cgroup.subtree_control").write_text("+memory")
        os.mkdir("probe", dir_fd=tried.directory)
        tried.limit("probe", 2**26)
        return True
    except OSError:
        return False
    finally:
        tried.close()


def _sweep(place: Path) -> None:
    for left in place.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with suppress(OSError):  # another runner sweeps too, or a process of it still ends
                for child in left.iterdir():
                    if child.is_dir():
                        child.rmdir()
                left.rmdir()


def _own() -> dict[str, str]:
    """The groups this process is in, by their controllers; version 2 has no name."""
    with suppress(FileNotFoundError):
        rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        return {name: path for _, names, path in rows for name in names.split(",")}
    return {}


def _first_version() -> Path | None:
    own = _own()
    return Path(f"{_ROOT}/memory{own['memory'].rstrip('/')}") if "memory" in own else None


def _second_version() -> Path | None:
    place = Path(f"{_ROOT}{_own().get('', '/').rstrip('/')}")
    with suppress(OSError):
        if "memory" in (place / "cgroup.controllers").read_text().split():
            return place
    return None
