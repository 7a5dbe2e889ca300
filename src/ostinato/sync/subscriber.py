"""The reading side. It downloads what is missing, checks every link, and hands out weights or refuses.

What is checked: each part's SHA-256, each tensor's digest before and after, the state root, and that each
manifest is the one its successor names. What fails a check is tried once more from an anchor, never returned.
"""

import hashlib
from collections.abc import Mapping

import torch

from ostinato.store import Missing, Objects
from ostinato.sync.codec import decode
from ostinato.sync.errors import DigestMismatch, UnknownVersion
from ostinato.sync.manifest import (
    ANCHOR_EVERY,
    Entry,
    Manifest,
    Part,
    anchor_key,
    manifest_key,
    versions_prefix,
)
from ostinato.sync.weights import Blob, Blobs, state_root, to_blobs, to_tensors


class Subscriber:
    """Any number may read one prefix while it is written. Raises ObjectsError when it cannot be read."""

    def __init__(self, objects: Objects, prefix: str = "weights") -> None:
        self._objects = objects
        self._prefix = prefix
        self._head: int | None = None
        self._held: tuple[int | None, Mapping[str, torch.Tensor]] = (None, {})
        self.mismatches = 0
        """How many fetches met something that was not what its digest says."""

    def head(self) -> int | None:
        """The newest version there is; None if nothing was published yet. Cheap enough to poll."""
        if self._head is None:
            keys = self._objects.list(versions_prefix(self._prefix))
            self._head = max(
                (int(key.rpartition("/")[2].removesuffix(".json")) for key in keys), default=None
            )
        while self._head is not None and self._objects.exists(manifest_key(self._prefix, self._head + 1)):
            self._head += 1
        return self._head

    def manifest(self, version: int) -> Manifest:
        """Raises UnknownVersion, or DigestMismatch when it is damaged."""
        key = manifest_key(self._prefix, version)
        try:
            manifest = Manifest.from_bytes(self._objects.get(key), key)
        except Missing as error:
            raise UnknownVersion(
                f"version {version} is not in {self._objects.where}/{self._prefix}"
            ) from error
        if manifest.version != version:
            raise DigestMismatch(key, f"version {version}", f"version {manifest.version}")
        return manifest

    def fetch(self, version: int) -> dict[str, torch.Tensor]:
        """The weights of `version`, bit for bit as published.

        Copy them before writing to them: the next fetch builds on them, and would refuse and start anew.
        Raises DigestMismatch naming the part or tensor, expected and got; UnknownVersion.
        """
        held, tensors = self._held
        try:
            blobs = self._load(version, held, tensors)
        except DigestMismatch:
            self.mismatches += 1
            if held is None:
                raise
            blobs = self._load(version, None, {})
        self._held = version, to_tensors(blobs)
        return dict(self._held[1])

    def _load(self, version: int, held: int | None, tensors: Mapping[str, torch.Tensor]) -> Blobs:
        newest = self.manifest(version)
        blobs: Blobs = to_blobs(tensors, copy=False)
        for manifest in self._plan(newest, held):
            blobs = self._apply(manifest, blobs)
        _expect(f"version {version}: state root", newest.state_root, state_root(blobs))
        return blobs

    def _plan(self, newest: Manifest, held: int | None) -> list[Manifest]:
        """The manifests to apply, oldest first: from what is held if that is near, else from an anchor."""
        plan, at = [], newest
        while at.version != held:
            near = held is not None and 0 <= at.version - held <= ANCHOR_EVERY
            if at.anchor is not None and not near:
                plan.append(self._anchor(at, at.anchor))
                break
            plan.append(at)
            if at.base is None:
                break
            at = self._parent(at, at.base)
        return plan[::-1]

    def _parent(self, child: Manifest, version: int) -> Manifest:
        try:
            parent = self.manifest(version)
        except UnknownVersion as error:
            key = manifest_key(self._prefix, version)
            raise DigestMismatch(key, f"the base of version {child.version}", "nothing") from error
        _expect(f"manifest of version {version}", str(child.parent_hash), parent.digest)
        return parent

    def _anchor(self, delta: Manifest, digest: str) -> Manifest:
        key = anchor_key(self._prefix, digest)
        anchor = Manifest.from_bytes(self._read(key), key)
        _expect(key, digest, anchor.digest)
        _expect(f"{key}: state root", delta.state_root, anchor.state_root)
        return anchor

    def _apply(self, manifest: Manifest, old: Blobs) -> dict[str, Blob]:
        parts = [self._part(part) for part in manifest.parts]
        return {
            entry.name: _decode(manifest.version, entry, old.get(entry.name), parts)
            for entry in manifest.tensors
        }

    def _part(self, part: Part) -> bytes:
        data = self._read(part.key)
        _expect(part.key, part.sha256, hashlib.sha256(data).hexdigest())
        return data

    def _read(self, key: str) -> bytes:
        try:
            return self._objects.get(key)
        except Missing as error:
            raise DigestMismatch(key, "an object", "nothing") from error


def _decode(version: int, entry: Entry, old: Blob | None, parts: list[bytes]) -> Blob:
    what = f"version {version}, tensor {entry.name!r}"
    if entry.before is not None:
        _expect(f"{what} before", entry.before, "nothing" if old is None else old.digest)
    payload = parts[entry.part][entry.offset : entry.offset + entry.length] if entry.length else b""
    try:
        blob = decode(entry.codec, old, payload, entry.dtype, entry.shape)
    except ValueError as error:
        raise DigestMismatch(what, f"a payload of codec {entry.codec}", str(error)) from error
    _expect(f"{what} after", entry.after, blob.digest)
    return blob


def _expect(what: str, expected: str, got: str) -> None:
    if expected != got:
        raise DigestMismatch(what, expected, got)
