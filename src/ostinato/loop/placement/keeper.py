"""The actor that keeps one service on a node of a Ray cluster: it starts children as a laptop does.

The child is killed when the actor's process ends, so nothing outlives a service that Ray has ended.
"""

import hashlib
import os
import signal
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ray.util import get_node_ip_address

import ostinato
from ostinato.loop.placement.base import ServiceCommand
from ostinato.loop.placement.local import LocalPlace

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The facts that an actor tells of its node."""

    node: str
    """The node's host name."""
    machine: str
    """The same on all nodes of one running kernel."""
    release: str
    """The version of ostinato there, with a digest of its code."""
    sees_folder: bool
    """True when the run's folder is there."""


def hello(directory: str) -> Hello:
    """Return what there is to say of this node."""
    node = socket.gethostname()
    return Hello(
        node=node,
        machine=BOOT.read_text().strip() if BOOT.exists() else node,
        release=release(),
        sees_folder=Path(directory).is_dir(),
    )


@cache
def release() -> str:
    """Return the version of ostinato here and a digest of its code, by which two check-outs differ."""
    root = Path(ostinato.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return f"{ostinato.__version__}+{digest.hexdigest()[:8]}"


class ServiceKeeper:
    """Keeps one child. Its calls run in one event loop, beside each other."""

    def __init__(self) -> None:
        self._place = LocalPlace(dies_by=signal.SIGKILL)

    async def hello(self, directory: str) -> Hello:
        return hello(directory)

    async def host(self) -> str:
        address: str = get_node_ip_address()
        return address

    async def ping(self) -> int:
        return os.getpid()

    async def start(self, command: ServiceCommand) -> int:
        await self._place.start(command)
        return self._place.pid

    async def line(self) -> bytes:
        return await self._place.line()

    async def ended(self) -> int:
        return await self._place.ended()

    async def kill(self) -> None:
        self._place.kill()

    async def stop(self) -> None:
        await self._place.stop()
