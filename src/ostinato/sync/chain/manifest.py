"""The published records of a version: the patches that lead to it, and the manifest that commits them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from ostinato.sync.chain.sealed import digest_of, none_such, seal, unsealed
from ostinato.sync.codec import CODECS
from ostinato.sync.weights import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One stored object that holds the payloads of one or more tensors.

    >>> Part(key="weights/parts/0000000003/9f", sha256="9f", bytes=812).bytes
    812
    """

    key: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of a patch: the place of its payload, and the digests before and after."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    codec: str
    part: int
    """The index into the patch's parts; the payload is the part's bytes [offset, offset + length)."""
    offset: int
    length: int
    before: str | None
    """xxh3-128 of the tensor that this is applied to; None when it stands alone."""
    digest: str
    """xxh3-128 of the tensor it becomes."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS or self.dtype not in DTYPES:
            raise ValueError(f"tensor {self.name!r}: unknown codec {self.codec!r} or dtype {self.dtype!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An edge of the version graph: a patch of `bytes` bytes of parts leads from `base` to `version`.

    >>> Way(version=8, base=0, bytes=90, digest="9f", beside=True).base
    0
    """

    version: int
    base: int | None
    """None for an anchor, which needs no other version."""
    bytes: int
    digest: str
    """The digest of the patch; for the patch in a version's manifest, that of the manifest."""
    beside: bool
    """True for a patch that is an object of its own, beside the manifest."""


ROWS = frozenset({"parts", "tensors", "ways"})
"""The fields whose values are sequences of dataclass instances."""


def _row(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as they are.

    `asdict` copies each string and takes ten times as long.
    """
    return {each.name: getattr(record, each.name) for each in fields(record)}


@dataclass(frozen=True, kw_only=True)
class Patch:
    """The payloads that turn the tensors of `base` into those of `version`."""

    version: int
    base: int | None
    """The version whose tensors the entries are applied to; None for an anchor, which stands alone."""
    parts: tuple[Part, ...]
    tensors: tuple[TensorEntry, ...]
    state_root: str

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the whole body."""
        return digest_of(self.body())

    def body(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            name: [_row(each) for each in value] if name in ROWS else value
            for name, value in _row(self).items()
        }

    @property
    def kind(self) -> str:
        return "anchor" if self.base is None else "delta"

    @property
    def size(self) -> int:
        """The bytes of all parts."""
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
        """Return the patch of these bytes.

        Raises DigestMismatch naming `what` if `to_bytes` did not write them.
        """
        body, digest = unsealed(data, what)
        try:
            patch = cls(**cls._fields(body))
        except (ValueError, TypeError, KeyError) as error:
            raise none_such(what, data, error) from error
        patch.__dict__["digest"] = digest  # just computed from these bytes
        return patch

    @classmethod
    def _fields(cls, body: dict[str, Any]) -> dict[str, Any]:
        parts = tuple(Part(**part) for part in body["parts"])
        tensors = tuple(TensorEntry(**{**entry, "shape": tuple(entry["shape"])}) for entry in body["tensors"])
        return {**body, "parts": parts, "tensors": tensors}


@dataclass(frozen=True, kw_only=True)
class Manifest(Patch):
    """A committed version. Its object is written last: without it the parts have no meaning."""

    run: str
    epoch: int
    """The epoch of its publisher: each publisher takes the next, and only the newest may write."""
    parent: int | None
    """The version it was trained from."""
    parent_hash: str | None
    """The `digest` of the parent's manifest, so that the chain cannot be rewritten."""
    ways: tuple[Way, ...]
    """Other ways to this version, and all ways to earlier ones, back to the newest anchor but one."""
    made_with: tuple[str, ...] = ()
    """The plug-ins that had a part in these weights, such as a loss: kind, name and hash of the source."""

    @property
    def graph(self) -> tuple[Way, ...]:
        """All ways that a reader of this version may take."""
        return (*self.ways, self.way)

    @classmethod
    def _fields(cls, body: dict[str, Any]) -> dict[str, Any]:
        ways, made_with = tuple(Way(**way) for way in body["ways"]), tuple(body.get("made_with", ()))
        return {**super()._fields(body), "ways": ways, "made_with": made_with}
