"""The confinement of the zygote's children: namespaces (`namespace_child`) or Landlock (`landlock_child`)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from ostinato.sandbox.protocol.order import Order


class Cell(Protocol):
    """A child of the zygote, prepared as far as no order is needed for it."""

    def live(self, order: Order, files: Mapping[str, int], begun: Callable[[], None]) -> None:
        """Finish the sandbox and serve until the backend hangs up; `begun` is called when it is at work.

        `files`: `control`; `calls`, a socket for an exam's worker; `layer`, to start from; `egress`, `gate`,
        where the door to a proxy, or the gate, is handed out.
        """
        ...


class Ground(Protocol):
    """How processes are confined."""

    def prepare(self) -> None:
        """In the zygote, before its first fork; raises OSError, RuntimeError where it cannot work."""
        ...

    def forking(self) -> AbstractContextManager[None]:
        """Around the fork of a child that becomes a cell."""
        ...

    def cell(self) -> Cell:
        """In that child."""
        ...

    @property
    def exam(self) -> str | None:
        """Where every judge finds its tests, once `prepare` has run; None when each has its own place."""
        ...

    def judge(self, tests: str) -> str:
        """In a judge: where it finds the directory `tests` of the machine, with room in /tmp."""
        ...
