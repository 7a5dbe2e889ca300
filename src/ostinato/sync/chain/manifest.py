"""What is published of a version: patches that lead to it, and the manifest that commits and binds them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from ostinato.sync.chain.sealed import digest_of, none_such, seal, unsealed
from ostinato.sync.codec import CODECS
from ostinato.sync.weights import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of payloads.

    >>> Part(key="weights/parts/0000000003/9f", sha256="9f", bytes=812).bytes
    812
    """

    key: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor: where its payload lies and what it turns into."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    codec: str
    part: int
    """Index into the patch's parts; the payload is its bytes [offset, offset + length)."""
    offset: int
    length: int
    before: str | None
    """xxh3-128 of the tensor this is applied to; None when it stands alone."""
    digest: str
    """xxh3-128 of the tensor it becomes."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS or self.dtype not in DTYPES:
            raise ValueError(f"tensor {self.name!r}: unknown codec {self.codec!r} or dtype {self.dtype!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An edge of the version graph: with `bytes` of parts one comes from `base` to `version`.

    >>> Way(version=8, base=0, bytes=90, digest="9f", beside=True).base
    0
    """

    version: int
    base: int | None
    """None: an anchor, which needs nothing."""
    bytes: int
    digest: str
    """Of the patch; for the patch in a version's manifest, of the manifest."""
    beside: bool
    """Whether the patch is an object of its own, beside the manifest."""


ROWS = frozenset({"parts", "tensors", "ways"})
"""The fields that are rows of records."""


def _row(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, as they are."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


@dataclass(frozen=True, kw_only=True)
class Patch:
    """How to get from `base` to `version`."""

    version: int
    base: int | None
    """The version whose tensors the entries are applied to; None for an anchor, which stands alone."""
    parts: tuple[Part, ...]
    tensors: tuple[Entry, ...]
    state_root: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in it."""
        return digest_of(self.body())

    def body(self) -> dict[str, Any]:
        """Everything in it as JSON knows it. `asdict` copies each string and takes ten times as long."""
        return {
            name: [_row(each) for each in value] if name in ROWS else value
            for name, value in _row(self).items()
        }

    @property
    def kind(self) -> str:
        return "anchor" if self.base is None else "delta"

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def way(self) -> Way:
        return Way(
            version=self.version,
            base=self.base,
            bytes=self.size,
            digest=self.digest,
            beside=not isinstance(self, Manifest),
        )

    def to_bytes(self) -> bytes:
        return seal(self.body())

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Self:
        """Raises DigestMismatch naming `what` unless `data` is, to the bit, what `to_bytes` wrote."""
        body, digest = unsealed(data, what)
        try:
            patch = cls(**cls._fields(body))
        except (ValueError, TypeError, KeyError) as error:
            raise none_such(what, data, error) from error
        patch.__dict__["digest"] = digest  # of these very bytes: not computed again
        return patch

    @classmethod
    def _fields(cls, body: dict[str, Any]) -> dict[str, Any]:
        parts = tuple(Part(**part) for part in body["parts"])
        tensors = tuple(Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in body["tensors"])
        return {**body, "parts": parts, "tensors": tensors}


@dataclass(frozen=True, kw_only=True)
class Manifest(Patch):
    """A committed version. Its object is written last: without it the parts are nothing."""

    run: str
    epoch: int
    """Which publisher of the run wrote it; they count up, and the newest is the only one that may."""
    parent: int | None
    """The version it was trained from."""
    parent_hash: str | None
    """`digest` of the parent's manifest: the chain cannot be rewritten."""
    ways: tuple[Way, ...]
    """Other ways to this version, and all ways to earlier ones, back to the newest anchor but one."""

    @property
    def graph(self) -> tuple[Way, ...]:
        """Every way that a reader of this version may take."""
        return (*self.ways, self.way)

    @classmethod
    def _fields(cls, body: dict[str, Any]) -> dict[str, Any]:
        return {**super()._fields(body), "ways": tuple(Way(**way) for way in body["ways"])}
