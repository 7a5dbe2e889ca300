"""What the zygote's children stand on: one kind with namespaces (`inside`), one without (`fenced`)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.sandbox.base import Limits

MAX_REQUEST = 1 << 17
"""Bytes of an order or an exam: a packet is sent and received whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the backend wants of the zygote: one sandbox."""

    id: str
    generation: str
    repo: str
    """An absolute path of the machine."""
    scratch: str
    """A directory of the machine to work in, where there is no namespace to put it in; else empty."""
    limits: Limits
    mounts: tuple[tuple[str, str], ...]
    """Absolute paths of the machine, and where they are seen."""
    environment: Mapping[str, str]

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> "Order":
        """The inverse of `dataclasses.asdict`."""
        mounts = tuple((source, target) for source, target in request["mounts"])
        return cls(**{**request, "limits": Limits(**request["limits"]), "mounts": mounts})


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
