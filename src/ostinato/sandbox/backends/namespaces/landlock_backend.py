"""Sandboxes where user namespaces are blocked: only Landlock and seccomp, on a copy of the repository.

Files outside the copy cannot be written, and only programs can be read; there is no network. This is not a
boundary: see `capabilities.lost`.
"""

import asyncio

from ostinato.sandbox.backends.namespaces.backend import NsBackend, capabilities
from ostinato.sandbox.base import Capabilities, Isolation, Mount, Spec, Unsupported
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.linux import landlock

_LOST = (
    "no pid namespace: other processes of the machine can be seen, and what escapes a killed agent lives on",
    "no network namespace: there are no sockets but local ones, not even to itself",
    "no mount namespace: the repository is copied, its size on disk is not bounded as a whole",
)


class LandlockBackend(NsBackend):
    """An `NsBackend` whose sandboxes work in temporary directories of the machine."""

    name = "landlock"
    root = "/repo"

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[str, Scratch] = {}

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(Isolation.LANDLOCK, set(), (*_LOST, *landlock.missing(landlock.abi())))

    def _check_mount(self, mount: Mount) -> None:
        raise Unsupported(self.name, f"show {mount.source} at {mount.target}", "ns")

    def _check_spec(self, spec: Spec) -> None:
        if spec.image is not None:
            raise Unsupported(self.name, f"have the image {spec.image.root} as its root", "ns")
        if spec.egress is not None:
            raise Unsupported(self.name, "let anything out", "ns")

    async def _scratch(self) -> str:
        made = await asyncio.to_thread(Scratch, self.name)
        self._made[str(made.path)] = made
        return str(made.path)

    async def drop(self, scratch: str) -> None:
        made = self._made.pop(scratch, None)
        if made is not None:
            await asyncio.to_thread(made.close)
