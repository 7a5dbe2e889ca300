"""The download of patches and their application to a copy of the weights; every digest is checked."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ostinato.store import Missing, Objects
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.manifest import Manifest, Part, Patch, TensorEntry, Way
from ostinato.sync.codec import decode
from ostinato.sync.errors import DigestMismatch, NotThere, expect
from ostinato.sync.weights import Blob, Blobs

CACHE_BYTES = 256 << 20
"""The most bytes of parts that are fetched ahead."""


class WrongBase(DigestMismatch):
    """The error for a patch that was made for another base; the patch itself may be sound."""


class Damaged(Exception):  # noqa: N818
    """The error for an edge of the version graph that cannot be taken; `reason` says why."""

    def __init__(self, way: Way, reason: DigestMismatch) -> None:
        super().__init__(str(reason))
        self.way, self.reason = way, reason


class Downloader:
    """Reads patches and parts, and keeps parts that were fetched ahead until they are used."""

    def __init__(self, objects: Objects, keys: Keys) -> None:
        self._objects = objects
        self._keys = keys
        self._ahead: dict[str, bytes] = {}

    def patch(self, way: Way) -> Patch:
        """Return the patch of a way. Raises DigestMismatch, NotThere."""
        key = self.key(way)
        try:
            data = self._objects.get(key)
        except Missing as error:
            raise NotThere(key) from error
        patch = (Patch if way.beside else Manifest).from_bytes(data, key)
        expect(key, way.digest, patch.digest)
        return patch

    def key(self, way: Way) -> str:
        """Return the key of the patch of `way`."""
        beside = self._keys.patch(way.version, way.digest)
        return beside if way.beside else self._keys.manifest(way.version)

    def walk(self, path: Sequence[tuple[Way, Patch]], blobs: Blobs) -> Blobs:
        """Apply the patches of `path` in order and return the result; `blobs` stays as it is.

        The next parts are fetched while one is decoded. Raises Damaged, which names the way, and WrongBase
        when the first patch was not made for `blobs`.
        """
        with self.stream([part for _, patch in path for part in patch.parts]) as parts:
            for way, patch in path:
                try:
                    blobs = _apply(patch, blobs, parts)
                except DigestMismatch as error:
                    if isinstance(error, WrongBase) and way is path[0][0]:
                        raise
                    raise Damaged(way, error) from error
        return blobs

    def fetch_ahead(self, version: int, most: int = CACHE_BYTES) -> int:
        """Fetch the parts of `version` that exist so far, committed or not, up to `most` bytes.

        Return the number of its parts that are in memory.
        """
        sizes = self._objects.sizes(self._keys.parts(version))
        room = min(most, CACHE_BYTES) - sum(map(len, self._ahead.values()))
        for key, size in sorted(sizes.items()):
            if key not in self._ahead and size <= room:
                self._keep(key, self._objects.get(key))
                room -= size
        return sum(key in self._ahead for key in sizes)

    def _keep(self, key: str, data: bytes) -> None:
        if hashlib.sha256(data).hexdigest() == key.rpartition("/")[2]:
            self._ahead[key] = data

    def forget_ahead(self) -> None:
        self._ahead.clear()

    @contextmanager
    def stream(self, parts: Sequence[Part]) -> Iterator[Iterator[bytes]]:
        """Yield an iterator over the checked contents of `parts`, in order."""
        with self._objects.stream([part.key for part in parts if part.key not in self._ahead]) as others:
            yield (self._checked(part, others) for part in parts)

    def _checked(self, part: Part, others: Iterator[bytes]) -> bytes:
        try:
            data = self._ahead[part.key] if part.key in self._ahead else next(others)
        except Missing as error:
            raise NotThere(part.key) from error
        expect(part.key, part.sha256, hashlib.sha256(data).hexdigest())
        return data


def _apply(patch: Patch, old: Blobs, parts: Iterator[bytes]) -> dict[str, Blob]:
    at, data, blobs = -1, b"", {}
    for entry in patch.tensors:
        while entry.length and at < entry.part:
            at, data = at + 1, next(parts)
        payload = data[entry.offset : entry.offset + entry.length] if entry.length else b""
        blobs[entry.name] = _decode(patch.version, entry, old.get(entry.name), payload)
    for _ in range(at + 1, len(patch.parts)):
        next(parts)
    return blobs


def _decode(version: int, entry: TensorEntry, old: Blob | None, payload: bytes) -> Blob:
    what = f"version {version}, tensor {entry.name!r}"
    actual = "nothing" if old is None else old.digest
    if entry.before is not None and entry.before != actual:
        raise WrongBase(f"{what} before", entry.before, actual)
    try:
        blob = decode(entry.codec, old, payload, entry.dtype, entry.shape)
    except ValueError as error:
        raise DigestMismatch(what, f"a payload of codec {entry.codec}", str(error)) from error
    expect(f"{what} after", entry.digest, blob.digest)
    return blob
