"""The protocols of an engine whose sandboxes have a kernel of their own, and of its virtual machines.

VmEngine ──fresh(spec)──► VirtualMachine, its guest waits for `enter` ──► a sandbox
       ──load(place)──► VirtualMachine, its guest continues from `VirtualMachine.save(place)`
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ostinato.sandbox.base import Capabilities, Isolation, SnapshotKind, Spec
from ostinato.sandbox.protocol.connection import AgentConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPart:
    """Bytes that a guest gets when it enters a sandbox: see `ostinato.sandbox.guest.vm_main`."""

    kind: str
    """`tree`, a tar archive, or `layer`."""
    at: str
    """The directory in which a tree is unpacked."""
    read: Callable[[], bytes]


def killed_with_us() -> tuple[str, ...]:
    """Return a prefix for a command, so that it is killed when this process ends.

    If this process has ended already, the command is not started.
    """
    alive = '[ "$PPID" = "$0" ] && exec "$@"'
    return ("setpriv", "--pdeathsig", "KILL", "sh", "-c", alive, str(os.getpid()))


def capabilities(isolation: Isolation) -> Capabilities:
    """Return the capabilities of a backend of virtual machines."""
    return Capabilities(
        isolation=isolation,
        snapshots=frozenset(SnapshotKind),
        fork=SnapshotKind.FULL,
        pause=True,
        egress=frozenset({"proxy"}),
        limits=frozenset({"rlimit"}),
    )


class VirtualMachine(Protocol):
    """A running guest. It ends with this process, in whatever way that ends."""

    async def connect(self, connection: AgentConnection) -> None:
        """Make `connection` the backend's end of the guest's channel; called once."""
        ...

    async def pause(self) -> None:
        """Stop its processors, after all processes in it but the agent were stopped."""
        ...

    async def resume(self) -> None: ...

    async def save(self, place: Path) -> None:
        """Write all that `VmEngine.load` needs into an existing directory; the guest is stopped meanwhile.

        No frame may be under way in its channel. Raises SandboxError, and then the caller deletes the files.
        """
        ...

    async def usage(self) -> tuple[float, int]:
        """Return CPU seconds and memory of the whole machine: see `linux.process_tree.usage`."""
        ...

    def why(self) -> str:
        """Return the last messages of its engine."""
        ...

    async def end(self) -> None:
        """End it at once, with all that belongs to it. A second call does nothing."""
        ...


class VmEngine(Protocol):
    """Makes machines of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def own_clock(self) -> bool:
        """True when a guest's clock and randomness are its own, so that they have to be set in a copy."""
        ...

    @property
    def slow_entry(self) -> bool:
        """True when loading a machine that has entered a sandbox is faster than entering another one."""
        ...

    @property
    def takes_images(self) -> bool:
        """True when a guest can have an image as its root."""
        ...

    async def base(self) -> str:
        """Return a name for what saved machines depend on; one saved on another base cannot be loaded."""
        ...

    async def fresh(self, spec: Spec) -> VirtualMachine:
        """Return a machine whose guest waits for `enter`; raises SandboxError."""
        ...

    async def load(self, place: Path, spec: Spec) -> VirtualMachine:
        """Return a copy of the machine saved in `place`; raises SandboxError."""
        ...

    def refill(self, spec: Spec) -> None:
        """Prepare what the next machine like `spec` needs, now that one is running."""
        ...

    def parts(self, spec: Spec) -> list[GuestPart]:
        """Return the parts that a fresh guest needs to see `spec`'s repository and mounts."""
        ...

    async def aclose(self) -> None: ...
