"""The version: one published state of the weights."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The record of one published version of the weights; the bytes themselves lie in the object store.

    >>> Checkpoint(version=1, parent=0, digest="9f", kind="delta", bytes=8, created_at=0.0, batch=()).kind
    'delta'
    """

    version: int
    parent: int | None
    digest: str
    kind: str
    """`anchor` or `delta`."""
    bytes: int
    created_at: float
    batch: tuple[str, ...]
    """Ids of the groups it was trained on; the id of a lesson begins with `lesson/`."""

    def __post_init__(self) -> None:
        if self.kind not in {"anchor", "delta"}:
            raise ValueError(f"version {self.version}: kind must be 'anchor' or 'delta', got {self.kind!r}")
