"""The encoding side of a patch: blobs are encoded against their base and stored as parts."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ostinato.store import Objects
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.manifest import Part, Patch, TensorEntry
from ostinato.sync.chain.sealed import create_once
from ostinato.sync.codec import FULL, encode
from ostinato.sync.errors import DigestMismatch
from ostinato.sync.weights import Blob, Blobs, WeightsSnapshot, state_root

PART_BYTES = 16 << 20
"""A part is closed once it has this many bytes; a tensor is never split. Parts are small enough for several
to be under way at once, and large enough that the delay of a request does not count."""
AT_ONCE = 4
"""Parts under way at once. This hides the delay of a distant bucket, and bounds the memory."""


class Uploader:
    """Writes parts, which have no meaning until their manifest is written."""

    def __init__(self, objects: Objects, keys: Keys) -> None:
        self._objects = objects
        self._keys = keys

    def patch(self, version: int, blobs: Blobs, base: WeightsSnapshot | None) -> Patch:
        """Upload the payloads that turn `base` into `blobs`; the next part is encoded while one is sent."""
        entries: list[TensorEntry] = []
        parts = self._put_all(version, _payloads(blobs, base, entries))
        return Patch(
            version=version,
            base=None if base is None else base.version,
            parts=parts,
            tensors=tuple(entries),
            state_root=state_root(blobs),
        )

    def _put_all(self, version: int, payloads: Iterator[bytes]) -> tuple[Part, ...]:
        """Upload all parts; the calling thread sends the last part, which is usually the only one."""
        under_way: list[Future[Part]] = []
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="upload") as pool:
            for data, is_last in _marked(payloads):
                if is_last:
                    tail = self._put(version, data)
                    return (*(future.result() for future in under_way), tail)
                if len(under_way) >= AT_ONCE:
                    under_way[-AT_ONCE].result()
                under_way.append(pool.submit(self._put, version, data))
        return ()

    def _put(self, version: int, data: bytes) -> Part:
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._keys.part(version, sha256)
        create_once(self._objects, key, data)
        return Part(key=key, sha256=sha256, bytes=len(data))

    def check(self, *patches: Patch) -> None:
        """Raise DigestMismatch unless the store lists all parts with their full size.

        The list is asked for because a store may acknowledge a write and lose it.
        """
        sizes = self._objects.sizes(self._keys.parts(patches[0].version))
        for part in (part for patch in patches for part in patch.parts):
            if sizes.get(part.key) != part.bytes:
                raise DigestMismatch(part.key, f"{part.bytes} bytes", f"{sizes.get(part.key, 'none')}")


def _marked(payloads: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each payload, and True with the last one."""
    held = next(payloads, None)
    for following in payloads:
        if held is not None:
            yield held, False
        held = following
    if held is not None:
        yield held, True


def _payloads(blobs: Blobs, base: WeightsSnapshot | None, entries: list[TensorEntry]) -> Iterator[bytes]:
    """Yield the contents of the parts, in order; `entries` grows as tensors are encoded."""
    pending, part = bytearray(), 0
    for name, blob in blobs.items():
        entry, payload = _entry(
            name, None if base is None else base.blobs.get(name), blob, part, len(pending)
        )
        entries.append(entry)
        pending += payload
        if len(pending) >= PART_BYTES:
            yield bytes(pending)
            pending, part = bytearray(), part + 1
    if pending:
        yield bytes(pending)


def _entry(name: str, old: Blob | None, new: Blob, part: int, offset: int) -> tuple[TensorEntry, bytes]:
    codec, payload = encode(old, new)
    entry = TensorEntry(
        name=name,
        dtype=new.dtype,
        shape=new.shape,
        codec=codec,
        part=part,
        offset=offset,
        length=len(payload),
        before=None if old is None or codec == FULL else old.digest,
        digest=new.digest,
    )
    return entry, payload
