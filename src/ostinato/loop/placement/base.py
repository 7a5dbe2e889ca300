"""The interface between the services of a run and what starts them.

::

    ServicePlacement.find ─► Place.start ─► line, ended, answers ─► kill or stop ─► leave
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 15.0
"""Seconds that a service may take to end after SIGTERM."""
LOST = -9
"""The exit status of a service whose host is gone: that of a process that was killed."""


class PlacementError(RuntimeError):
    """There is no place for a service; the message says what is missing, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCommand:
    """One start of a service: a module with its arguments.

    >>> ServiceCommand(arguments=("-m", "http.server"), log=Path("web.log"), speaks=False).environment
    {}
    """

    arguments: tuple[str, ...]
    """The arguments of the interpreter."""
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The additions to the environment, secrets among them."""
    speaks: bool = True
    """Its first line of output is read; without, its output goes to the log."""


class Place(Protocol):
    """Room for one service on one host. One process at a time runs there."""

    @property
    def host(self) -> str:
        """The address at which the services of the run reach this host."""

    @property
    def pid(self) -> int:
        """The id, on its host, of the process that was started last."""

    async def start(self, command: ServiceCommand) -> None:
        """Start the process."""

    async def line(self) -> bytes:
        """Return its next line of output; empty when it ended."""

    async def ended(self) -> int:
        """Wait for its end and return its exit status, minus the signal's number after a signal; `LOST` when
        the host is gone.
        """

    async def answers(self, timeout_s: float) -> bool:
        """Return whether the host can still be asked to start something."""

    def kill(self) -> None:
        """End the process at once."""

    async def stop(self) -> None:
        """Ask the process to end, and kill it after STOP_TIMEOUT_S."""

    async def leave(self) -> None:
        """Give the room back, when nothing runs there any more."""


class ServicePlacement(Protocol):
    """Finds places for services."""

    @property
    def here(self) -> str:
        """The address at which the services of the run reach this process."""

    async def find(self, name: str, kind: str) -> Place:
        """Return a place for the service `name` with the resources of its `kind`. Raises PlacementError."""

    async def reserve(self, kinds: list[str]) -> None:
        """Raise PlacementError when services of these kinds would never find room at the same time."""

    async def aclose(self) -> None:
        """Leave the cluster."""
