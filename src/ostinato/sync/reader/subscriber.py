"""The reading side: what is the newest version, and its exact weights by the way that needs the fewest bytes.

What is checked: each part's SHA-256, each tensor's digest before and after, the state root, that each
manifest is of this run and is the one its successor names. A way that fails a check is not taken again: the
next one is tried, at last an anchor. What cannot be shown to be right is never returned.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch

from ostinato.store import Missing, Objects, ObjectsError, Watch
from ostinato.sync.chain.architecture import check_architecture, patch_signature, signature_of
from ostinato.sync.chain.epochs import read_epoch
from ostinato.sync.chain.keys import Keys, number_of
from ostinato.sync.chain.leases import horizon, lease
from ostinato.sync.chain.manifest import Manifest, Patch, Way
from ostinato.sync.chain.paths import cheapest
from ostinato.sync.errors import DigestMismatch, NotThere, UnknownVersion, expect
from ostinato.sync.reader.download import Damaged, Downloader
from ostinato.sync.shards import assemble
from ostinato.sync.weights import Blobs, Snapshot, state_root, to_blobs, to_tensors

log = logging.getLogger(__name__)
RELIST_EVERY = 16
"""Polls without news until all versions are listed: one of them may have been lost, and hide those after it.
"""


AHEAD_TIMES = 2
"""So many times the bytes of the last version are fetched ahead at most: an anchor beside a small delta does
not come along, since nobody who follows needs it."""


class Subscriber:
    """Any number may read one prefix while it is written. Raises ObjectsError when it cannot be read."""

    def __init__(
        self,
        objects: Objects,
        prefix: str = "weights",
        *,
        like: Mapping[str, torch.Tensor] | None = None,
        leases: bool = True,
    ) -> None:
        """`like` are weights of the architecture that is served; without it the first version sets it.
        Without `leases` nothing is ever written, and a version may be collected while it is read.
        """
        self._objects = objects
        self._keys = Keys(prefix)
        self._leases = leases
        self._downloader = Downloader(objects, self._keys)
        self._like = None if like is None else signature_of(like)
        self._head: int | None = None
        self._polls = 0
        self._held: tuple[int | None, Mapping[str, torch.Tensor]] = (None, {})
        self._ahead_bytes = 0
        self._links: dict[int, str] = {}
        self._runs: dict[int, str] = {}
        self.mismatches = 0
        """How many fetches met something that was not what its digest says."""

    def head(self) -> int | None:
        """The newest version there is; None if nothing was published yet. Cheap enough to poll."""
        if self._head is None:
            self._head = self._listed()
        while self._head is not None and self._objects.exists(self._keys.manifest(self._head + 1)):
            self._head += 1
            self._polls = 0
        self._polls += 1
        if self._polls % RELIST_EVERY == 0:
            self._head = self._listed()
        return self._head

    def _listed(self) -> int | None:
        return max(map(number_of, self._objects.list(self._keys.versions)), default=None)

    def manifest(self, version: int) -> Manifest:
        """Raises UnknownVersion, or DigestMismatch when it is damaged or not of this chain."""
        key = self._keys.manifest(version)
        try:
            manifest = Manifest.from_bytes(self._objects.get(key), key)
        except Missing as error:
            raise UnknownVersion(
                f"version {version} is not in {self._objects.where}/{self._keys.prefix}"
            ) from error
        expect(key, f"version {version}", f"version {manifest.version}")
        self._check_links(manifest, key)
        return manifest

    def fetch(self, version: int) -> dict[str, torch.Tensor]:
        """The weights of `version`, bit for bit as published, whole even if ranks published shards.

        Copy them before writing to them: the next fetch builds on them, and would refuse and start anew.
        Raises DigestMismatch naming the part or tensor, expected and got; UnknownVersion; OtherArchitecture.
        """
        return assemble(to_tensors(self.snapshot(version).blobs))

    def snapshot(self, version: int) -> Snapshot:
        """As `fetch`, in the form in which it was published."""
        try:
            manifest = self.manifest(version)
            self._check_architecture(manifest)
            blobs = self._reach(manifest)
        except DigestMismatch as error:
            self._count(error)
            raise
        self._links[version] = manifest.digest
        self._like = self._like or patch_signature(manifest)
        self._held = version, to_tensors(blobs)
        self._ahead_bytes = AHEAD_TIMES * manifest.size
        self._downloader.forget_ahead()
        return Snapshot(version=version, blobs=blobs)

    def prefetch(self) -> int:
        """Fetch what is there of the version after the newest one, while it is still being published; gives
        how many parts are at hand. To be called while there is nothing else to do, by who follows the head.
        """
        head = self.head()
        return 0 if head is None else self._downloader.fetch_ahead(head + 1, self._ahead_bytes)

    def watch(self) -> Watch:
        """Tells of new versions, where the object store can. To be closed."""
        return self._objects.watch(self._keys.versions)

    def _reach(self, manifest: Manifest) -> Blobs:
        """Try one way after the other, the cheapest first, until the weights are those of the manifest."""
        held, doubted = self._held[0], set[str]()
        first: DigestMismatch | None = None
        while (path := cheapest(manifest.graph, held, manifest.version, doubted)) is not None:
            try:
                with self._spared(manifest.version, held, path):
                    blobs = self._walk(manifest, path, held)
            except Damaged as error:
                doubted.add(error.way.digest)
                first = first or error.reason
            except DigestMismatch as error:  # what we hold is at fault
                held, first = None, first or error
            else:
                self._count(first)
                return blobs
        if isinstance(first, NotThere) and manifest.version < horizon(self._objects, self._keys):
            raise UnknownVersion(
                f"version {manifest.version} of {self._objects.where} was collected"
            ) from first
        raise first or UnknownVersion(f"no way leads to version {manifest.version}")

    def _walk(self, manifest: Manifest, path: Sequence[Way], held: int | None) -> Blobs:
        blobs: Blobs = {} if held is None else to_blobs(self._held[1], copy=False)
        route = [(way, manifest if way.digest == manifest.digest else self._patch(way)) for way in path]
        blobs = self._downloader.walk(route, blobs)
        try:
            expect(f"version {manifest.version}: state root", manifest.state_root, state_root(blobs))
        except DigestMismatch as error:
            raise (Damaged(path[-1], error) if path else error) from error
        return blobs

    def _patch(self, way: Way) -> Patch:
        try:
            return self._downloader.patch(way)
        except DigestMismatch as error:
            raise Damaged(way, error) from error

    @contextmanager
    def _spared(self, version: int, held: int | None, path: Sequence[Way]) -> Iterator[None]:
        """On lease, unless it is one step of those that are spared anyway."""
        one_step = len(path) < 2 and all(way.base is not None for way in path)
        with ExitStack() as stack:
            if self._leases and not one_step:
                try:
                    stack.enter_context(lease(self._objects, self._keys, version, held))
                except ObjectsError as error:
                    log.warning(
                        "no lease on version %d, it may be collected while it is read: %s", version, error
                    )
            yield

    def _count(self, error: DigestMismatch | None) -> None:
        if error is not None and not isinstance(error, NotThere):
            self.mismatches += 1

    def _check_links(self, manifest: Manifest, key: str) -> None:
        """The manifest is of this run, and agrees on the past with itself and with what was read before."""
        if manifest.epoch not in self._runs:
            self._runs[manifest.epoch] = read_epoch(self._objects, self._keys, manifest.epoch).run
        for run in self._runs.values():
            expect(f"{key}: run", run, manifest.run)
        links = {way.version: way.digest for way in manifest.graph if not way.beside}
        for version, digest in self._links.items():
            expect(f"{key}: manifest of version {version}", digest, links.get(version, digest))
        if manifest.parent in links:
            expect(
                f"{key}: manifest of version {manifest.parent}",
                links[manifest.parent],
                str(manifest.parent_hash),
            )

    def _check_architecture(self, manifest: Manifest) -> None:
        found = patch_signature(manifest)
        if self._like is not None:
            check_architecture(f"version {manifest.version}", found, self._like)
