"""Two hosts on one machine: network namespaces, joined by a wire that can be cut; and a small disk.

A cut wire takes what is sent and delivers nothing, and neither side is told.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fuzz.postgres import ADMIN, PostgresServer, missing, name_of

from ostinato.sandbox.linux import syscalls

HOME, AWAY = "10.91.7.1", "10.91.7.2"
CARDS = {HOME: "02:00:00:00:91:01", AWAY: "02:00:00:00:91:02"}
NOBODY = "02:00:00:00:91:ff"
"""The address of a network card that is not there."""


class Wire:
    """The wire between the host of the server, HOME, and that of its clients, AWAY."""

    def __init__(self) -> None:
        self._hosts = {HOME: _namespace(), AWAY: _namespace()}
        far = f"/proc/{os.getpid()}/fd/{self._hosts[AWAY]}"
        kinds = ("type", "veth", "peer", "name", "wire", "address", CARDS[AWAY], "netns", far)
        self._ip(HOME, "link", "add", "wire", "address", CARDS[HOME], *kinds)
        for host in self._hosts:
            self._ip(host, "address", "add", f"{host}/24", "dev", "wire")
            self._ip(host, "link", "set", "wire", "up")
        self.join()

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        """Let this thread, and the processes that it starts, be on a host."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.move_to(host)
        try:
            yield
        finally:
            syscalls.setns(before, syscalls.NEW_NET)
            os.close(before)

    def move_to(self, host: str) -> None:
        """Let this thread be on a host for good."""
        syscalls.setns(self._hosts[host], syscalls.NEW_NET)

    def cut(self) -> None:
        self._address(NOBODY, NOBODY)

    def join(self) -> None:
        self._address(CARDS[HOME], CARDS[AWAY])

    def close(self) -> None:
        for descriptor in self._hosts.values():
            os.close(descriptor)

    def _address(self, home: str, away: str) -> None:
        for here, there, card in ((HOME, AWAY, away), (AWAY, HOME, home)):
            self._ip(here, "neigh", "replace", there, "lladdr", card, "dev", "wire", "nud", "permanent")

    def _ip(self, host: str, *arguments: str) -> None:
        with self.on(host):
            subprocess.run(["ip", *arguments], check=True)


def _namespace() -> int:
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    syscalls.unshare(syscalls.NEW_NET)
    try:
        syscalls.raise_loopback()
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    finally:
        syscalls.setns(before, syscalls.NEW_NET)
        os.close(before)


class FarServer(PostgresServer):
    """A server at HOME, which clients at AWAY reach over the wire, and the test over a Unix socket."""

    def __init__(self, wire: Wire, parent: str | None = None) -> None:
        settings = {"listen_addresses": HOME, "max_wal_size": "64MB", "min_wal_size": "32MB"}
        super().__init__(settings, parent)
        self.wire = wire
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {AWAY}/32 trust\n")

    def start(self) -> None:
        with self.wire.on(HOME):
            super().start()

    def far(self, name: str, **options: object) -> str:
        """Return the URL of a database for clients at AWAY, with options of its connections."""
        more = "&".join(f"{key}={value}" for key, value in options.items())
        return f"postgresql+psycopg://{ADMIN}@{HOME}:{self.port}/{name}?{more}"

    def new_far(self, **options: object) -> str:
        return self.far(name_of(self.new()), **options)

    def processes(self) -> list[int]:
        """Return the process ids of the server, that of the postmaster first."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]


@contextmanager
def far_server(parent: str | None = None) -> Iterator[FarServer]:
    """A running server at HOME; skips the test where none can be."""
    if sys.platform != "linux" or os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root makes network namespaces, with Linux's ip")
    if reason := missing():
        pytest.skip(reason)
    try:
        wire = Wire()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces: {error}")
    try:
        with FarServer(wire, parent) as server:
            yield server
    finally:
        wire.close()


@contextmanager
def mounted(size: str) -> Iterator[Path]:
    """A real file system of this size that every user reaches; skips the test where none may be mounted."""
    path = Path(tempfile.mkdtemp(prefix="ost-small-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(path)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        path.rmdir()
        pytest.skip("may not mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()
