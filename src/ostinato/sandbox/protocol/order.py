"""The order by which a backend asks its zygote for one sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
