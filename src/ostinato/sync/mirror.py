"""A region's copy of a chain: parts first, manifests last, so that readers see a version whole or not at all.

Readers of the region use only the mirror's object store. Each byte crosses the distance once, and no more
bytes do than a single reader would have needed.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ostinato.store import Objects
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.leases import lease
from ostinato.sync.chain.manifest import Manifest, Way
from ostinato.sync.chain.paths import cheapest
from ostinato.sync.chain.sealed import create_once
from ostinato.sync.errors import DigestMismatch
from ostinato.sync.reader.download import Damaged, Downloader
from ostinato.sync.reader.subscriber import Subscriber

log = logging.getLogger(__name__)


class Mirror:
    """One process per region calls `step` for ever, and may be killed. Nothing is decoded, every hash is
    checked.

    Methods raise the errors of a reader of the source, and StorageFull when the region's store is full.
    """

    def __init__(self, source: Objects, target: Objects, prefix: str = "weights") -> None:
        self._keys = Keys(prefix)
        self._source = source
        self._target = target
        self._reader = Subscriber(source, prefix)
        self._downloader = Downloader(source, self._keys)
        self.version = Subscriber(target, prefix).head()
        """The newest version that the region has."""

    def step(self) -> bool:
        """Copy the newest version if the region lacks it, else fetch the parts of the next one so far.

        Return True when a version was copied.
        """
        head = self._reader.head()
        if head is None or head == self.version:
            if head is not None:
                self._downloader.fetch_ahead(head + 1)
            return False
        manifest = self._reader.manifest(head)
        with self._leased(manifest):
            for epoch in range(1, manifest.epoch + 1):
                self._copy_object(self._keys.epoch(epoch))
            self._copy_manifests(manifest, self._copy_path(manifest))
            self._copy_anchors(manifest)
        return True

    @contextmanager
    def _leased(self, manifest: Manifest) -> Iterator[None]:
        """Hold a lease on the version, unless it is one delta away: those are kept anyway.

        Without a lease there are three requests less.
        """
        path = cheapest(manifest.graph, self.version, manifest.version)
        with ExitStack() as stack:
            if path is None or len(path) > 1 or path[0].base is None:
                stack.enter_context(lease(self._source, self._keys, manifest.version, self.version))
            yield

    def _copy_path(self, manifest: Manifest) -> dict[int, bytes]:
        """Copy the path of fewest bytes from the region's newest version to this one, without its manifests.

        Return those manifests by version. A path with a damaged way is given up for the next cheapest.
        """
        damaged: dict[str, DigestMismatch] = {}
        while (path := cheapest(manifest.graph, self.version, manifest.version, damaged)) is not None:
            try:
                return self._copy(path, manifest)
            except Damaged as error:
                damaged[error.way.digest] = error.reason
        raise next(iter(damaged.values()))

    def _copy_manifests(self, manifest: Manifest, known: dict[int, bytes]) -> None:
        """Copy all manifests in order, because readers follow them one by one.

        A mirror that was killed goes on after the last one.
        """
        first = min(known, default=manifest.version) if self.version is None else self.version + 1
        for version in range(first, manifest.version):
            data = known.get(version) or self._bytes_of(version)
            create_once(self._target, self._keys.manifest(version), data)
        create_once(self._target, self._keys.manifest(manifest.version), manifest.to_bytes())
        self.version = manifest.version
        self._downloader.forget_ahead()

    def _bytes_of(self, version: int) -> bytes:
        """Return the bytes of a manifest.

        A damaged one is copied as it is: readers refuse it and go past it.
        """
        try:
            return self._reader.manifest(version).to_bytes()
        except DigestMismatch:
            return self._source.get(self._keys.manifest(version))

    def _copy_anchors(self, manifest: Manifest) -> None:
        """Copy the anchors, for readers that start in this region; no other reader waits for them.

        An anchor that cannot be copied is tried again with the next version.
        """
        for way in manifest.graph:
            if way.base is None:
                try:
                    if not self._has(way):
                        for version, data in self._copy([way], manifest).items():
                            create_once(self._target, self._keys.manifest(version), data)
                except (Damaged, DigestMismatch) as error:
                    log.warning("the anchor of version %d is not copied yet: %s", way.version, error)

    def _has(self, way: Way) -> bool:
        sizes = self._target.sizes(self._keys.parts(way.version))
        if not self._target.exists(self._downloader.key(way)):
            return False
        return all(sizes.get(part.key) == part.bytes for part in self._downloader.patch(way).parts)

    def _copy(self, path: Sequence[Way], newest: Manifest) -> dict[int, bytes]:
        """Copy parts and patches; return the patches that are manifests, which are to be copied last.

        Raises Damaged naming the way that could not be copied.
        """
        manifests = {}
        for way in path:
            try:
                patch = newest if way.digest == newest.digest else self._downloader.patch(way)
                with self._downloader.stream(patch.parts) as contents:
                    for part, data in zip(patch.parts, contents, strict=True):
                        create_once(self._target, part.key, data)
            except DigestMismatch as error:
                raise Damaged(way, error) from error
            if way.beside:
                create_once(self._target, self._downloader.key(way), patch.to_bytes())
            else:
                manifests[way.version] = patch.to_bytes()
        return manifests

    def _copy_object(self, key: str) -> None:
        if not self._target.exists(key):
            create_once(self._target, key, self._source.get(key))
