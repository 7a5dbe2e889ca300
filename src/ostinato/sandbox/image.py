"""The image of a sandbox, which replaces the machine's programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The root file system that a sandbox has instead of the machine's programs.

    >>> Image(root=Path("/srv/images/9f/rootfs"), workdir="/app").environment
    {}
    """

    root: Path
    """The unpacked files. They are never written: what a sandbox writes above them ends with it."""
    workdir: str = "/repo"
    """An absolute path at which commands see the repository too."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command; those of the spec go before."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "Image | None":
        """Return the image that `ostinato tasks build` noted in a task's metadata; None without one."""
        table = metadata.get("image")
        if table is None:
            return None
        return cls(root=Path(table["root"]), workdir=table["workdir"], environment=table["environment"])
