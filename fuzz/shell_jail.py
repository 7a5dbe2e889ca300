"""A jail in which real shells run commands while every program and every written file is noted.

The jail is a mount, process and network namespace. Its root holds the shells, their libraries, and programs
that only note how they were called: whatever a command runs, by PATH or by an absolute path, is one of them,
so nothing runs unseen. It is read-only but for one folder, whose files are listed after each command.
"""
# The jail is built and served with as few calls as possible, hence `os` and not `pathlib`.

import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SHELLS = {"dash": ("dash", "sh"), "bash": ("bash", "bash"), "bash_as_sh": ("bash", "sh")}
"""The program of each shell, and the name it is called by."""
PROGRAMS = (
    "ok", "bad", "x", "no", "ls", "git", "make", "time", "a=b", "FOO+=1", "{", "}", "12", "2", "-s", "in",
    "do", "d,", "[[", "coproc", "select", "function", "\xb2", "\xe9", "ok\xa0", "&", "#x", "!",
)  # fmt: skip
STUB = """#!/shell/dash
printf '%s\\000' "$0" "$@" '\037END' >> /log/ran
printf bad
case $0 in */no) exit 1;; esac
"""
ENVIRONMENT = {"PATH": "/bin", "X": "bad", "Y": "", "Z": "x bad", "HOME": "/jail/d", "ENV": "", "CDPATH": ""}
PATIENCE_S = 3.0
CLONE_NEWNS, CLONE_NEWIPC = 1 << 17, 1 << 27
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 28, 1 << 29, 1 << 30
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of a command: the words of each program that ran, and the files it made or changed."""

    ran: list[list[str]]
    wrote: list[str]
    timed_out: bool = False


def can_jail() -> bool:
    """Return whether this machine has both shells and allows namespaces."""
    if not all(map(shutil.which, ("dash", "bash", "ldd"))) or sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with jailed(Path(folder)) as run:
                return run("dash", "ok").ran == [["/bin/ok"]]
        except OSError:
            return False


def _build(root: Path) -> None:
    for name in ("shell", "bin", "jail", "log", "dev", "tmp"):
        (root / name).mkdir()
    for shell in ("dash", "bash"):
        program = shutil.which(shell)
        assert program is not None
        shutil.copy(os.path.realpath(program), root / "shell" / shell)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
    for name in PROGRAMS:
        (root / "bin" / name).write_text(STUB)
        (root / "bin" / name).chmod(0o755)
    (root / "dev" / "null").touch()


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = [each.encode() if isinstance(each, str) else each for each in arguments]
    if getattr(libc, name)(*encoded) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _enter(root: Path) -> None:
    """Enter new namespaces; the next child becomes the first process of its own."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    _call("unshare", flags if user == 0 else flags | CLONE_NEWUSER)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _call("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
    _call("mount", str(root), str(root), None, MS_BIND, None)
    _call("mount", "/dev/null", str(root / "dev" / "null"), None, MS_BIND, None)
    for name in ("jail", "log"):
        _call("mount", "tmpfs", str(root / name), "tmpfs", 0, None)
    _call("mount", "none", str(root), None, MS_BIND | MS_REMOUNT | MS_RDONLY, None)
    os.chroot(root)
    os.chdir("/jail")


def _serve(requests: socket.socket) -> None:
    """Run each requested command, as the first process of the jail."""
    with requests.makefile("rw", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            shell, command = json.loads(line)
            lines.write(json.dumps(_ran(shell, command)) + "\n")
            lines.flush()


def _fresh() -> None:
    for entry in os.scandir("/jail"):
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else Path(entry).unlink()
    Path("/jail/d").mkdir()
    for place in ("/jail/bad", "/jail/d/bad"):
        Path(place).symlink_to("/bin/bad")
    Path("/jail/f").write_text("seen")
    Path("/log/ran").write_text("")


def _listing() -> dict[str, object]:
    entries: dict[str, object] = {}
    for folder, folders, names in os.walk("/jail"):
        for name in names:
            path = f"{folder}/{name}"
            entries[path] = os.lstat(path).st_size, os.lstat(path).st_mtime_ns
        entries |= {f"{folder}/{name}": None for name in folders}
    return entries


def _ran(shell: str, command: str) -> dict[str, object]:
    _fresh()
    before = _listing()
    program, called = SHELLS[shell]
    null = [(os.POSIX_SPAWN_OPEN, each, "/dev/null", os.O_RDWR, 0) for each in (0, 1, 2)]
    child = os.posix_spawn(f"/shell/{program}", [called, "-c", command], ENVIRONMENT, file_actions=null)
    timed_out = _end_all(child)
    calls = Path("/log/ran").read_bytes().decode(errors="surrogateescape").split("\0\037END\0")[:-1]
    after = _listing()
    wrote = [path for path in after if after[path] != before.get(path, "")]
    return {"ran": [call.split("\0") for call in calls], "wrote": wrote, "timed_out": timed_out}


def _end_all(child: int) -> bool:
    """Wait for the shell and its descendants; return whether some of them had to be killed."""
    late = time.monotonic() + PATIENCE_S
    descriptor = os.pidfd_open(child)
    select.select([descriptor], [], [], PATIENCE_S)
    os.close(descriptor)
    killed = False
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if not ended and time.monotonic() > late and not killed:
            killed = True
            os.kill(-1, signal.SIGKILL)
        elif not ended:
            time.sleep(0.0005)


class Jail:
    """A connection to the jail; a call runs a command in a shell and returns its effects."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = connection.makefile("rw", encoding="utf-8", newline="\n")

    def __call__(self, shell: str, command: str) -> Effects:
        self._lines.write(json.dumps([shell, command]) + "\n")
        self._lines.flush()
        response = self._lines.readline()
        if not response:
            raise OSError("the jail has ended")
        return Effects(**json.loads(response))


@contextmanager
def jailed(folder: Path) -> Iterator[Jail]:
    """Build a jail in an empty folder. Raises OSError where namespaces are not available."""
    root = folder / "jail"
    root.mkdir()
    _build(root)
    near, far = socket.socketpair()
    outer = os.fork()
    if outer == 0:
        status = 1
        try:
            near.close()
            _enter(root)
            inner = os.fork()
            if inner == 0:
                _serve(far)
                os._exit(0)
            far.close()
            os.waitpid(inner, 0)
            status = 0
        except OSError as error:
            sys.stderr.write(f"no jail: {error}\n")
        finally:
            os._exit(status)
    far.close()
    try:
        yield Jail(near)
    finally:
        near.shutdown(socket.SHUT_RDWR)
        near.close()
        os.waitpid(outer, 0)
