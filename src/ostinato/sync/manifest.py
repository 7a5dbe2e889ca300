"""The manifest of one version: what it consists of, on what it builds, and what must come out."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from ostinato.sync.codec import FULL, SAME, XOR
from ostinato.sync.errors import DigestMismatch
from ostinato.sync.weights import DTYPES

ANCHOR_EVERY = 25
"""A delta carries an anchor beside it at least this often: no new reader walks a longer chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of payloads.

    >>> Part(key="weights/parts/9f", sha256="9f", bytes=812).bytes
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
    """Index into the manifest's parts; the payload is its bytes [offset, offset + length)."""
    offset: int
    length: int
    before: str | None
    """xxh3-128 of the tensor this is applied to; None when it stands alone."""
    after: str

    def __post_init__(self) -> None:
        if self.codec not in {SAME, XOR, FULL} or self.dtype not in DTYPES:
            raise ValueError(f"tensor {self.name!r}: unknown codec {self.codec!r} or dtype {self.dtype!r}")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A committed version. Its object is written last: without it the parts are nothing."""

    version: int
    base: int | None
    """The version whose tensors the entries are applied to; None for an anchor, which stands alone."""
    parent: int | None
    """The version it was trained from."""
    parent_hash: str | None
    """`digest` of the parent's manifest: the chain cannot be rewritten."""
    parts: tuple[Part, ...]
    tensors: tuple[Entry, ...]
    state_root: str
    anchor: str | None = None
    """`digest` of an anchor with the same tensors, for readers who do not hold `base`."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything else in it."""
        return hashlib.sha256(_canonical(self._body())).hexdigest()

    @property
    def kind(self) -> str:
        return "anchor" if self.base is None else "delta"

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    def _body(self) -> dict[str, Any]:
        return asdict(self)

    def to_bytes(self) -> bytes:
        return _canonical({"digest": self.digest, **self._body()})

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Self:
        """Raises DigestMismatch naming `what` unless `data` is, to the bit, what `to_bytes` wrote."""
        try:
            body = json.loads(data)
            claimed = str(body.pop("digest"))
            body["parts"] = tuple(Part(**part) for part in body["parts"])
            body["tensors"] = tuple(Entry(**{**t, "shape": tuple(t["shape"])}) for t in body["tensors"])
            manifest = cls(**body)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DigestMismatch(what, "a manifest", f"{len(data)} bytes that are none ({error})") from error
        if manifest.digest != claimed or manifest.to_bytes() != data:
            raise DigestMismatch(what, f"digest {claimed}", manifest.digest)
        return manifest


def manifest_key(prefix: str, version: int) -> str:
    """One key per version: whoever creates it has committed the version."""
    return f"{versions_prefix(prefix)}/{version:010d}.json"


def versions_prefix(prefix: str) -> str:
    return f"{prefix}/versions"


def anchor_key(prefix: str, digest: str) -> str:
    return f"{prefix}/anchors/{digest}.json"


def part_key(prefix: str, sha256: str) -> str:
    return f"{prefix}/parts/{sha256}"


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
