"""The machine outside as an escape would find it, the traces of escapes, and the count of the attempts."""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.conftest import FAR, GVISOR, MACHINES, closed_at_the_end, opened

from ostinato.sandbox import Backend
from ostinato.sandbox.choose import KINDS

ENGINES = ("/var/lib/containers/", "/run/netns", "/run/runsc", "/run/user/")
IPC_RMID, IPC_CREAT = 0, 0o1000


@dataclass(slots=True, kw_only=True)
class Outside:
    """Secrets in a file and a process, sockets that record connections, and state that must not change."""

    folder: Path
    secret: str = field(default_factory=lambda: uuid.uuid4().hex)
    marker: str = field(default_factory=lambda: f"marker-{uuid.uuid4().hex}")
    knocks: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def state(self) -> dict[str, object]:
        """Return all state that an escape could change."""
        witness = self.facts["witness"]
        return {
            "file": Path(self.facts["file"]).read_text(),
            "names": sorted(path.name for path in self.folder.iterdir()),
            "repo": sorted(path.name for path in Path(self.facts["repo"]).iterdir()),
            "made": [
                path for path in ("/usr/made", "/usr/bin/made", sys.prefix + "/made") if Path(path).exists()
            ],
            "hostname": socket.gethostname(),
            "mounts": self._mounts(),
            "witness": Path(f"/proc/{witness}/cmdline").read_text(),
            "priority": os.getpriority(os.PRIO_PROCESS, witness),
            "cores": os.sched_getaffinity(witness),
        }

    def _mounts(self) -> list[str]:
        """Return the mounts, except those of other tests, and those that an engine makes for containers."""
        elsewhere = tempfile.gettempdir() + "/"
        return [
            line
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if not (place := line.split()[1]).startswith((elsewhere, *ENGINES))
            or place.startswith(str(self.folder))
        ]

    def left_behind(self) -> list[str]:
        """Return the processes on the machine that carry the marker and do not merely look for it."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().rstrip(b"\0").endswith(self.marker.encode()):
                    found.append(str(path))
        return found


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    found = Outside(folder=tmp_path_factory.mktemp("outside"))
    with contextlib.ExitStack() as stack:
        found.facts = {
            "secret": found.secret,
            "marker": found.marker,
            **_files(found),
            **_doors(found, stack),
        }
        witness = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)", found.secret],
            env={"SECRET": found.secret},
        )
        stack.callback(witness.wait)
        stack.callback(witness.kill)
        found.facts |= {"witness": witness.pid, "runner": os.getpid(), "hostname": socket.gethostname()}
        Path(found.facts["repo"], "facts.json").write_text(json.dumps(found.facts))
        yield found


def _files(outside: Outside) -> dict[str, Any]:
    secret, repo = outside.folder / "secret", outside.folder / "repo"
    secret.write_text(outside.secret)
    repo.mkdir()
    (repo / "attempts.py").write_bytes(Path(__file__).with_name("attempts.py").read_bytes())
    shadow = Path("/etc/shadow").read_text() if os.access("/etc/shadow", os.R_OK) else "unreadable here too"
    return {
        "file": str(secret),
        "folder": str(outside.folder),
        "repo": str(repo),
        "shadow": shadow,
        "home": str(Path.home().parent),
    }


def _doors(outside: Outside, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Open sockets that record connections, and a segment of shared memory."""
    doors = {
        "port": _door(outside, stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp": _door(outside, stack, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "port6": _door(outside, stack, socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
    }
    names = {"abstract": f"ostinato-{outside.marker}", "socket": str(outside.folder / "door")}
    _door(outside, stack, socket.AF_UNIX, socket.SOCK_STREAM, "\0" + names["abstract"])
    _door(outside, stack, socket.AF_UNIX, socket.SOCK_STREAM, names["socket"])
    key, libc = uuid.uuid4().int & 0x7FFFFFFF, ctypes.CDLL(None)
    segment = libc.shmget(key, 4096, IPC_CREAT | 0o600)
    stack.callback(libc.shmctl, segment, IPC_RMID, None)
    return {**doors, **names, "shm": key}


def _door(
    outside: Outside, stack: contextlib.ExitStack, family: int, kind: int, address: tuple[str, int] | str
) -> int:
    """Open one socket; return its port, 0 if the machine lacks its address family."""
    sock = stack.enter_context(socket.socket(family, kind))
    try:
        sock.bind(address)
    except OSError:
        return 0
    if kind == socket.SOCK_STREAM:
        sock.listen()
    threading.Thread(target=_note_knocks, args=(outside, sock, str(address)), daemon=True).start()
    return 0 if family == socket.AF_UNIX else int(sock.getsockname()[1])


def _note_knocks(outside: Outside, sock: socket.socket, name: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            if sock.type == socket.SOCK_STREAM:
                with sock.accept()[0] as visitor:
                    visitor.settimeout(1.0)
                    visitor.recv(3)
            else:
                sock.sendto(b"in!", sock.recvfrom(99)[1])
            outside.knocks.append(name)


@pytest.fixture(scope="session")
def backends() -> Iterator[dict[str, Backend]]:
    with closed_at_the_end() as found:
        yield found


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.machines] * (name in MACHINES))
        for name in (*KINDS, GVISOR)
        if name not in {"process", *FAR}  # the servers of those are our own, and no boundary
    ]
)
def backend(request: pytest.FixtureRequest, backends: dict[str, Backend]) -> Backend:
    """Return a backend that is a boundary on this machine."""
    name = request.param
    found = opened(name, backends)
    if not found.capabilities.boundary:
        pytest.skip(f"{name} is no boundary: {'; '.join(found.capabilities.lost)}")
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many attempts to get out were made, and how many were stopped."""
    count = {
        outcome: sum(
            "escapes/" in report.nodeid and report.when == "call"
            for report in terminalreporter.getreports(outcome)
        )
        for outcome in ("passed", "failed")
    }
    if total := sum(count.values()):
        terminalreporter.write_line(f"escapes: {total} cases, {count['passed']} contained")
