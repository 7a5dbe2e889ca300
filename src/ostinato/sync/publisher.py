"""The writing side. Parts first, the manifest last, each created once: a version is there whole or not.

The publisher's own picture of what readers hold moves only after the commit, so a failed publish leaves no
trace and can simply be repeated.
"""

import hashlib
from collections.abc import Mapping

import torch

from ostinato.store import AlreadyExists, Objects, ObjectsError
from ostinato.sync.codec import FULL, encode
from ostinato.sync.errors import DigestMismatch, Fenced, OutOfOrder
from ostinato.sync.manifest import ANCHOR_EVERY, Entry, Manifest, Part, anchor_key, manifest_key, part_key
from ostinato.sync.subscriber import Subscriber
from ostinato.sync.weights import Blob, Blobs, state_root, to_blobs

PART_BYTES = 64 << 20
"""A part is closed once it has this many bytes; a tensor is never split."""


class Publisher:
    """The one writer of a prefix. Versions have no gaps; only the first is free to choose.

    Not thread-safe. After a restart call `resume`. Raises StorageFull when there is no space (nothing is
    published, the same call may be repeated), and Fenced for good once another publisher has taken over.
    """

    def __init__(self, objects: Objects, prefix: str = "weights") -> None:
        self._objects = objects
        self._prefix = prefix
        self._last: Manifest | None = None
        self._blobs: Blobs = {}
        self._since_anchor = 0
        self._fenced: Fenced | None = None

    @property
    def version(self) -> int | None:
        """The last version committed or resumed from."""
        return None if self._last is None else self._last.version

    def resume(self) -> int | None:
        """Go on from the newest version there is; None, and nothing to do, if there is none."""
        reader = Subscriber(self._objects, self._prefix)
        head = reader.head()
        if head is not None:
            self._blobs = to_blobs(reader.fetch(head), copy=False)
            self._last = reader.manifest(head)
            self._since_anchor = ANCHOR_EVERY
        return head

    def anchor(
        self, version: int, tensors: Mapping[str, torch.Tensor], parent: int | None = None
    ) -> Manifest:
        """Publish weights that stand alone; `parent` is the version of this prefix they were trained from."""
        self._check_order(version)
        blobs = to_blobs(tensors, copy=True)
        parts, entries = self._upload({}, blobs)
        manifest = Manifest(
            version=version,
            base=None,
            parent=parent,
            parent_hash=None if parent is None else self._reader().manifest(parent).digest,
            parts=parts,
            tensors=entries,
            state_root=state_root(blobs),
        )
        return self._commit(manifest, blobs, since_anchor=0)

    def delta(self, version: int, tensors: Mapping[str, torch.Tensor]) -> Manifest:
        """Publish what changed since the last committed version."""
        self._check_order(version)
        if self._last is None:
            raise OutOfOrder(f"version {version}: a delta needs a base; call anchor or resume first")
        blobs = to_blobs(tensors, copy=True)
        parts, entries = self._upload(self._blobs, blobs)
        anchor = self._anchor_beside(version, blobs) if self._since_anchor + 1 >= ANCHOR_EVERY else None
        manifest = Manifest(
            version=version,
            base=self._last.version,
            parent=self._last.version,
            parent_hash=self._last.digest,
            parts=parts,
            tensors=entries,
            state_root=state_root(blobs),
            anchor=anchor,
        )
        return self._commit(manifest, blobs, since_anchor=0 if anchor else self._since_anchor + 1)

    def _reader(self) -> Subscriber:
        return Subscriber(self._objects, self._prefix)

    def _check_order(self, version: int) -> None:
        if self._fenced is not None:
            raise self._fenced
        head = self._reader().head() if self._last is None else self.version
        # Before its first commit a publisher may repeat what its predecessor did: equal bytes are a success.
        repeats = self._last is None and head is not None and version <= head
        if head is not None and version != head + 1 and not repeats:
            raise OutOfOrder(f"version {version} cannot follow version {head}: versions have no gaps")

    def _anchor_beside(self, version: int, blobs: Blobs) -> str:
        parts, entries = self._upload({}, blobs)
        root = state_root(blobs)
        anchor = Manifest(
            version=version,
            base=None,
            parent=None,
            parent_hash=None,
            parts=parts,
            tensors=entries,
            state_root=root,
        )
        self._put(anchor_key(self._prefix, anchor.digest), anchor.to_bytes())
        return anchor.digest

    def _upload(self, old: Blobs, new: Blobs) -> tuple[tuple[Part, ...], tuple[Entry, ...]]:
        """Write the payloads of `new` against `old`; says where they lie."""
        entries: list[Entry] = []
        parts: list[Part] = []
        pending = bytearray()
        for name, blob in new.items():
            entry, payload = _entry(name, old.get(name), blob, len(parts), len(pending))
            entries.append(entry)
            pending += payload
            if len(pending) >= PART_BYTES:
                parts.append(self._put_part(bytes(pending)))
                pending.clear()
        if pending:
            parts.append(self._put_part(bytes(pending)))
        return tuple(parts), tuple(entries)

    def _put_part(self, data: bytes) -> Part:
        sha256 = hashlib.sha256(data).hexdigest()
        key = part_key(self._prefix, sha256)
        self._put(key, data)
        return Part(key=key, sha256=sha256, bytes=len(data))

    def _put(self, key: str, data: bytes) -> None:
        """Create an object whose key is its hash; one that is there already must hold the same bytes."""
        try:
            self._objects.create(key, data)
        except AlreadyExists:
            if self._objects.get(key) != data:
                raise DigestMismatch(key, f"{len(data)} bytes of that hash", "other bytes") from None

    def _commit(self, manifest: Manifest, blobs: Blobs, *, since_anchor: int) -> Manifest:
        key, data = manifest_key(self._prefix, manifest.version), manifest.to_bytes()
        try:
            self._objects.create(key, data)
        except ObjectsError as error:
            self._settle(key, data, error)
        self._last, self._blobs, self._since_anchor = manifest, blobs, since_anchor
        return manifest

    def _settle(self, key: str, data: bytes, error: ObjectsError) -> None:
        """The create failed, or its answer was lost. What lies there now decides whether we committed."""
        try:
            found = self._objects.get(key)
        except ObjectsError:
            raise error from None
        if found != data:
            self._fenced = Fenced(f"{key} was committed by another publisher: stop this one")
            raise self._fenced from error


def _entry(name: str, old: Blob | None, new: Blob, part: int, offset: int) -> tuple[Entry, bytes]:
    codec, payload = encode(old, new)
    entry = Entry(
        name=name,
        dtype=new.dtype,
        shape=new.shape,
        codec=codec,
        part=part,
        offset=offset,
        length=len(payload),
        before=None if old is None or codec == FULL else old.digest,
        after=new.digest,
    )
    return entry, payload
