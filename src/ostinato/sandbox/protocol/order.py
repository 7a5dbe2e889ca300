"""The order that a backend sends to its zygote to get one sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.sandbox.base import Limits

MAX_REQUEST = 1 << 17
"""The most bytes of an order or an exam, which is sent and received as one packet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Everything that a child of the zygote needs to know to become one sandbox."""

    id: str
    repo: str
    """An absolute path of the machine."""
    scratch: str
    """A directory of the machine to work in where there is no mount namespace; otherwise empty."""
    limits: Limits
    mounts: tuple[tuple[str, str], ...]
    """Absolute paths of the machine, each with its path in the sandbox."""
    environment: Mapping[str, str]
    image: tuple[str, str] | None = None
    """The absolute path of an image's files on the machine, and its working directory."""

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> "Order":
        """Return the order that `dataclasses.asdict` made `request` of."""
        mounts = tuple((source, target) for source, target in request["mounts"])
        image = tuple(request["image"]) if request["image"] is not None else None
        return cls(**{**request, "limits": Limits(**request["limits"]), "mounts": mounts, "image": image})
