"""Bounds the memory of a whole sandbox, where this user may make cgroups (version 1 or 2).

    <the runner's own group>/ostinato-<pid of the runner>-<random>/<number of a child>

The groups of one zygote lie in one directory, which it knows only as an open descriptor. A child enters its
group before anything else and cannot leave it, since it sees no cgroup file system. The number of processes
is bounded by each sandbox's own namespaces instead (see `files.rootfs`).
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
_MAX_IDLE = 256
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_BUSY_TRIES, _BUSY_PAUSE_S = 100, 0.005
_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class CgroupPool:
    """The groups below one open directory; `version` is that of cgroups, 1 or 2."""

    def __init__(self, version: int, directory: int) -> None:
        self.version = version
        self.directory = directory
        self._numbers = itertools.count(1)
        self._released: deque[str] = deque()

    def acquire(self) -> str:
        """Return the name of a group for a new child: a released one that is empty again, or a new one.

        Groups are used again because making and removing one costs as much as all namespaces of a sandbox
        together, the network's left out.
        """
        while self._released:
            name = self._released.popleft()
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
        """Bound the memory of a group, including files that it wrote to memory."""
        self._write(f"{name}/{_LIMIT[self.version]}", memory_bytes)

    def release(self, name: str) -> None:
        """Let another child have the group, whose own has ended."""
        self._released.append(name)
        if len(self._released) > _MAX_IDLE:
            self._remove(self._released.popleft())

    def _is_idle(self, name: str) -> bool:
        used = int(self._read(f"{name}/{_USED[self.version]}"))
        return used <= _IDLE_BYTES and not self._read(f"{name}/cgroup.procs")

    def _remove(self, name: str) -> None:
        """Remove a group, trying again: for a moment after its last process ended the kernel says busy."""
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


class CgroupDirectory(CgroupPool):
    """A fresh directory with the groups of one zygote."""

    def __init__(self, version: int, above: Path) -> None:
        self._path = above / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self._path.mkdir()
        super().__init__(version, os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        """End the processes of all groups and remove them, once the zygote has ended.

        A directory that the kernel does not let go within ten seconds is logged.
        """
        deadline = time.monotonic() + _CLOSE_S
        while not self._try_to_clear() and time.monotonic() < deadline:
            time.sleep(_BUSY_PAUSE_S)
        os.close(self.directory)
        if self._path.exists():
            _log.warning("%s is still in use after %g s: remove it by hand", self._path, _CLOSE_S)

    def _try_to_clear(self) -> bool:
        """Remove all groups once; return True when nothing is left.

        A child of a killed zygote may live, or be making its group, until it notices the zygote's death.
        """
        with suppress(FileNotFoundError):
            for child in [path for path in self._path.iterdir() if path.is_dir()]:
                _end(child)
        with suppress(OSError):
            self._path.rmdir()
        return not self._path.exists()


def _end(group: Path) -> None:
    with suppress(OSError):  # removed already, or busy until the killed processes have ended
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            if pid:  # 0 is a process that this namespace cannot see; to `kill` it means our process group
                os.kill(pid, signal.SIGKILL)
        group.rmdir()


def create_directory() -> CgroupDirectory | None:
    """Return a fresh directory, None where this user can make none.

    Removes the directories of runners that have ended.
    """
    above = usable()
    if above is None:
        return None
    version, parent = above
    _sweep(parent)
    directory = CgroupDirectory(version, parent)
    if version == 2:
        (directory._path / "cgroup.subtree_control").write_text("+memory")
    return directory


@cache
def usable() -> tuple[int, Path] | None:
    """Return the cgroup version that works here and the group to work in, found by one trial."""
    for version, parent in ((1, _first_version()), (2, _second_version())):
        if parent is not None and _works(version, parent):
            return version, parent
    return None


def _works(version: int, parent: Path) -> bool:
    try:
        trial = CgroupDirectory(version, parent)
    except OSError:
        return False
    try:
        if version == 2:
            (trial._path / "cgroup.subtree_control").write_text("+memory")
        os.mkdir("probe", dir_fd=trial.directory)
        trial.limit("probe", 2**26)
        return True
    except OSError:
        return False
    finally:
        trial.close()


def _sweep(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with suppress(OSError):  # another runner removes it too, or one of its processes is still ending
                for child in directory.iterdir():
                    if child.is_dir():
                        child.rmdir()
                directory.rmdir()


def _own() -> dict[str, str]:
    """Return the groups that this process is in, by controller; the controller of version 2 is empty."""
    with suppress(FileNotFoundError):
        rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        return {name: path for _, names, path in rows for name in names.split(",")}
    return {}


def _first_version() -> Path | None:
    own = _own()
    return Path(f"{_ROOT}/memory{own['memory'].rstrip('/')}") if "memory" in own else None


def _second_version() -> Path | None:
    group = Path(f"{_ROOT}{_own().get('', '/').rstrip('/')}")
    with suppress(OSError):
        if "memory" in (group / "cgroup.controllers").read_text().split():
            return group
    return None
