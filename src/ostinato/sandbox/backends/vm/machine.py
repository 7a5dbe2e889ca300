"""What a backend needs of an engine whose sandboxes have a kernel of their own.

VmEngine ──fresh(spec)──► VirtualMachine, its guest waits for `enter` ──► a sandbox
       ──load(place)──► VirtualMachine, its guest goes on where `VirtualMachine.save(place)` found it
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ostinato.sandbox.base import Capabilities, Spec
from ostinato.sandbox.protocol.connection import AgentConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPart:
    """Bytes that a guest gets when it enters a sandbox: see `ostinato.sandbox.guest.vm_main`."""

    kind: str
    """`tree`, a tar archive, or `layer`."""
    at: str
    """Where a tree is unpacked."""
    read: Callable[[], bytes]


def tied() -> tuple[str, ...]:
    """In front of a command: it is killed when this process ends, and does not begin if that was before."""
    alive = '[ "$PPID" = "$0" ] && exec "$@"'
    return ("setpriv", "--pdeathsig", "KILL", "sh", "-c", alive, str(os.getpid()))


class VirtualMachine(Protocol):
    """One guest that runs. It ends with this process, however that ends."""

    async def connect(self, connection: AgentConnection) -> None:
        """Make `connection` this backend's end of the guest's channel. Once."""
        ...

    async def pause(self) -> None:
        """Stop its processors; nothing runs in it but its agent at that time."""
        ...

    async def resume(self) -> None: ...

    async def save(self, place: Path) -> None:
        """Write all that `VmEngine.load` needs into an existing directory, and go on.

        The guest stands still meanwhile; its channel is quiet. Raises SandboxError and leaves the rest to the
        caller to delete.
        """
        ...

    async def usage(self) -> tuple[float, int]:
        """CPU seconds of the whole machine so far, and its memory: see `family.spent`."""
        ...

    def why(self) -> str:
        """The last that its engine said."""
        ...

    async def end(self) -> None:
        """At once, with all that belongs to it. Calling it again does nothing."""
        ...


class VmEngine(Protocol):
    """Makes machines of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def own_clock(self) -> bool:
        """True when a guest's clock and randomness are its own, so that a copy has to be told the time."""
        ...

    @property
    def slow_entry(self) -> bool:
        """True when it is faster to load a sandbox that has entered already than to enter another one."""
        ...

    async def base(self) -> str:
        """Names what saved machines build on: one saved on another base cannot be loaded."""
        ...

    async def fresh(self, spec: Spec) -> VirtualMachine:
        """A machine whose guest waits for `enter`; raises SandboxError."""
        ...

    async def load(self, place: Path, spec: Spec) -> VirtualMachine:
        """A copy of the machine saved in `place`; raises SandboxError."""
        ...

    def refill(self, spec: Spec) -> None:
        """A machine for `spec` is at work: make ready, meanwhile, what the next one like it needs."""
        ...

    def parts(self, spec: Spec) -> list[GuestPart]:
        """What a fresh guest needs beside its order to see `spec`'s repository and mounts."""
        ...

    async def aclose(self) -> None: ...
