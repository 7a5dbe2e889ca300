"""The reading side: the newest version, and its exact weights by the path that needs the fewest bytes.

The checks are the SHA-256 of each part, the digest of each tensor before and after, the state root, and that
each manifest is of this run and is the one that its successor names. After a failed check the next cheapest
path is tried, and finally an anchor. Weights that cannot be shown to be right are never returned.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch

from ostinato.store import Missing, Objects, ObjectsError, Watch
from ostinato.sync.chain.architecture import check_architecture, patch_signature, signature_of
from ostinato.sync.chain.epochs import read_epoch
from ostinato.sync.chain.keys import Keys, numbers
from ostinato.sync.chain.leases import horizon, lease
from ostinato.sync.chain.manifest import Manifest, Patch, Way
from ostinato.sync.chain.paths import cheapest
from ostinato.sync.errors import DigestMismatch, NotThere, UnknownVersion, expect
from ostinato.sync.reader.download import Damaged, Downloader
from ostinato.sync.shards import assemble
from ostinato.sync.weights import Blobs, WeightsSnapshot, state_root, to_blobs, to_tensors

log = logging.getLogger(__name__)
RELIST_EVERY = 16
"""Polls without a new version after which all are listed: a manifest that was lost may hide later ones."""
AHEAD_TIMES = 2
"""The most bytes that are fetched ahead, as a multiple of the last version. An anchor beside a small delta is
larger and stays out, because a reader that follows does not need it."""


class Subscriber:
    """A reader of one prefix; any number may read while it is written.

    Methods raise ObjectsError when the store cannot be read.
    """

    def __init__(
        self,
        objects: Objects,
        prefix: str = "weights",
        *,
        like: Mapping[str, torch.Tensor] | None = None,
        beside: Mapping[str, torch.Tensor] | None = None,
        leases: bool = True,
    ) -> None:
        """Read below `prefix`; `like` are weights of the served architecture, else the first version sets it.
        A version has all of `beside` as well, or none.

        Without `leases` nothing is ever written, and a version may be collected while it is read.
        """
        self._objects = objects
        self._keys = Keys(prefix)
        self._leases = leases
        self._downloader = Downloader(objects, self._keys)
        self._like = None if like is None else signature_of(like)
        self._beside = signature_of(beside or {})
        layers = {_kind(name) for name in like or {}}
        self._unlike = {name for name in self._beside if _kind(name) not in layers}
        """The names that show `beside`: a model of one more layer has the others."""
        self._head: int | None = None
        self._polls = 0
        self._held: tuple[int | None, Mapping[str, torch.Tensor]] = (None, {})
        self._ahead_bytes = 0
        self._links: dict[int, str] = {}
        self._runs: dict[int, str] = {}
        self.mismatches = 0
        """The number of fetches that met an object or tensor without its digest."""

    def head(self) -> int | None:
        """Return the newest version, or None if nothing was published yet. This is cheap enough to poll."""
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
        return max(numbers(self._keys.versions, self._objects.list(self._keys.versions)), default=None)

    def manifest(self, version: int) -> Manifest:
        """Return the manifest of a version.

        Raises UnknownVersion, and DigestMismatch when it is damaged or not of this chain.
        """
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
        """Return the weights of `version`, bit for bit as published, whole even if ranks published shards.

        Copy them before writing to them: the next fetch builds on them, and would notice and load everything
        again. Raises DigestMismatch naming the part or tensor with the expected and the actual digest,
        UnknownVersion and OtherArchitecture.
        """
        return assemble(to_tensors(self.snapshot(version).blobs))

    def snapshot(self, version: int) -> WeightsSnapshot:
        """Return the weights of `version` in the form in which they were published; errors as in `fetch`."""
        try:
            manifest = self.manifest(version)
            self._check_architecture(manifest)
            blobs = self._weights_of(manifest)
        except DigestMismatch as error:
            self._count(error)
            raise
        self._links[version] = manifest.digest
        self._like = self._like or patch_signature(manifest)
        self._held = version, to_tensors(blobs)
        self._ahead_bytes = AHEAD_TIMES * manifest.size
        self._downloader.forget_ahead()
        return WeightsSnapshot(version=version, blobs=blobs)

    def prefetch(self) -> int:
        """Fetch the parts of the next version that exist so far, while it is still being published.

        Return the number of parts in memory. A reader that follows the head calls this while it is idle.
        """
        head = self.head()
        return 0 if head is None else self._downloader.fetch_ahead(head + 1, self._ahead_bytes)

    def watch(self) -> Watch:
        """Return a watch for new versions; close it after use."""
        return self._objects.watch(self._keys.versions)

    def _weights_of(self, manifest: Manifest) -> Blobs:
        """Try one path after the other, the cheapest first, until the weights are those of the manifest."""
        held, damaged = self._held[0], set[str]()
        first: DigestMismatch | None = None
        while (path := cheapest(manifest.graph, held, manifest.version, damaged)) is not None:
            try:
                with self._leased(manifest.version, held, path):
                    blobs = self._apply_path(manifest, path, held)
            except Damaged as error:
                damaged.add(error.way.digest)
                first = first or error.reason
            except DigestMismatch as error:  # the weights we hold are at fault
                held, first = None, first or error
            else:
                self._count(first)
                return blobs
        if isinstance(first, NotThere) and manifest.version < horizon(self._objects, self._keys):
            raise UnknownVersion(
                f"version {manifest.version} of {self._objects.where} was collected"
            ) from first
        raise first or UnknownVersion(f"no way leads to version {manifest.version}")

    def _apply_path(self, manifest: Manifest, path: Sequence[Way], held: int | None) -> Blobs:
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
    def _leased(self, version: int, held: int | None, path: Sequence[Way]) -> Iterator[None]:
        """Hold a lease on the version, unless it is one delta away: those are kept anyway."""
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
        """Check that the manifest is of this run, and agrees on the past with itself and earlier reads."""
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
        if self._like is not None:
            actual = patch_signature(manifest)
            more = self._beside if self._unlike & actual.keys() else {}
            check_architecture(f"version {manifest.version}", actual, {**self._like, **more})


def _kind(name: str) -> str:
    """Return what a tensor is, without the layer that it belongs to."""
    return ".".join(name.rsplit(".", 2)[-2:])
