"""The publisher of versions.

It creates the parts first and the manifest last, each once, so a version exists whole or not at all. Its own
copy of the last published weights changes only after the commit, so a failed publication can be repeated.
"""

import secrets
from collections.abc import Mapping, Sequence

import torch

from ostinato.store import Missing, Objects, ObjectsError
from ostinato.sync.chain.architecture import check_architecture, patch_signature
from ostinato.sync.chain.epochs import Epoch, check_newest, claim
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.manifest import Manifest, Patch
from ostinato.sync.chain.paths import Cadence, still_useful
from ostinato.sync.chain.sealed import create_once
from ostinato.sync.errors import Fenced, NotThere, OutOfOrder, Overtaken, expect
from ostinato.sync.reader.subscriber import Subscriber
from ostinato.sync.shards import Shard, flatten
from ostinato.sync.weights import Blobs, WeightsSnapshot, to_blobs
from ostinato.sync.writer.ranks import RankExchange, RankGroup
from ostinato.sync.writer.upload import Uploader

Tensors = Mapping[str, torch.Tensor | Shard]


class Publisher:
    """The one writer of a prefix: a process, or one rank of a group.

    Versions have no gaps; only the first may be any number. A publisher is not thread-safe. After a restart
    call `resume`. Methods raise StorageFull when there is no space (nothing is published, and the same call
    may be repeated), Overtaken when the version was taken (`resume` then), and Fenced, for good, once a newer
    publisher has started.
    """

    def __init__(
        self,
        objects: Objects,
        prefix: str = "weights",
        *,
        group: RankGroup | None = None,
        cadence: Cadence | None = None,
        made_with: tuple[str, ...] = (),
    ) -> None:
        self._objects = objects
        self._keys = Keys(prefix)
        self._group = group or RankGroup(rank=0, size=1, job=secrets.token_hex(8))
        self._cadence = cadence or Cadence()
        self._made_with = made_with
        self._uploader = Uploader(objects, self._keys)
        self._exchange = RankExchange(objects, self._keys, self._group)
        self._epoch: Epoch | None = None
        self._last: Manifest | None = None
        self._base: WeightsSnapshot | None = None
        self._milestone: WeightsSnapshot | None = None
        self._fenced: Fenced | None = None

    @property
    def version(self) -> int | None:
        """The last version that was committed or resumed from."""
        return None if self._last is None else self._last.version

    def resume(self) -> int | None:
        """Take over, and go on from the newest version; return it, or None if there is none.

        Raises DigestMismatch when that version is damaged: publishing on top of it would hide the damage.
        """
        self._start()
        reader = Subscriber(self._objects, self._keys.prefix)
        head = reader.head()
        if head is not None:
            self._base = reader.snapshot(head)
            self._milestone = None
            self._last = reader.manifest(head)
        return head

    def anchor(self, version: int, tensors: Tensors, parent: int | None = None) -> Manifest:
        """Publish weights that stand alone; `parent` is the version of this prefix they were trained from."""
        self._check_order(version)
        blobs = to_blobs(flatten(tensors), copy=True)
        before = None if parent is None else self._reader().manifest(parent)
        return self._publish(blobs, [self._uploader.patch(version, blobs, None)], before)

    def delta(self, version: int, tensors: Tensors) -> Manifest:
        """Publish the changes since the last committed version.

        When the cadence asks for it, a patch from an older base or an anchor is published too; the first
        version of a new epoch always has an anchor.

        Raises OtherArchitecture when these are not the same tensors: those need an anchor.
        """
        self._check_order(version)
        if self._last is None or self._base is None:
            raise OutOfOrder(f"version {version}: a delta needs a base; call anchor or resume first")
        blobs = to_blobs(flatten(tensors), copy=True)
        patches = [self._uploader.patch(version, blobs, base) for base in self._bases(version, self._last)]
        return self._publish(blobs, patches, self._last)

    def _bases(self, version: int, last: Manifest) -> list[WeightsSnapshot | None]:
        """Return the bases of the patches of `version`, the manifest's first; None means an anchor."""
        skip, epoch = self._milestone, self._start()
        spans = skip is not None and skip.version == version - self._cadence.skip
        due = last.epoch != epoch.number or self._cadence.anchor_due(last)
        return [self._base, *([skip] if spans else []), *([None] if due else [])]

    def _publish(self, blobs: Blobs, patches: Sequence[Patch], before: Manifest | None) -> Manifest:
        epoch = self._start()
        if self._group.rank:
            self._exchange.share(epoch, patches)
            manifest = self._exchange.committed(patches[0].version, epoch, patches)
        else:
            whole = self._exchange.gather(epoch, patches)
            self._uploader.check(*whole)
            manifest = self._commit(self._manifest(epoch, whole, before))
        return self._advance(manifest, blobs)

    def _manifest(self, epoch: Epoch, patches: Sequence[Patch], before: Manifest | None) -> Manifest:
        """Return a manifest that binds the patches, its own first, to everything published before."""
        main, *beside = patches
        if before is not None and main.base is not None:
            check_architecture(f"version {main.version}", patch_signature(main), patch_signature(before))
        for patch in beside:
            create_once(self._objects, self._keys.patch(patch.version, patch.digest), patch.to_bytes())
        earlier = () if self._last is None else self._last.graph
        return Manifest(
            version=main.version,
            base=main.base,
            parts=main.parts,
            tensors=main.tensors,
            state_root=main.state_root,
            run=epoch.run,
            epoch=epoch.number,
            parent=None if before is None else before.version,
            parent_hash=None if before is None else before.digest,
            ways=still_useful([*earlier, *(patch.way for patch in beside)]),
            made_with=self._made_with,
        )

    def _commit(self, manifest: Manifest) -> Manifest:
        """Create the manifest, which is the only step that readers see, and return the stored manifest."""
        self._check_fence()
        key = self._keys.manifest(manifest.version)
        refused: ObjectsError | None = None
        try:
            self._objects.create(key, manifest.to_bytes())
        except ObjectsError as error:
            refused = error
        # Only the stored object counts: a write reported as failed may have succeeded, and the reverse.
        return self._settle(manifest, key, refused)

    def _settle(self, ours: Manifest, key: str, refused: ObjectsError | None) -> Manifest:
        try:
            stored = Manifest.from_bytes(self._objects.get(key), key)
        except Missing as error:
            raise refused or NotThere(key) from error
        expect(key, f"version {ours.version}", f"version {stored.version}")
        if stored.epoch > ours.epoch:
            self._fenced = Fenced(f"{key} was committed by a newer publisher: stop this one")
            raise self._fenced
        if any(getattr(stored, name) != getattr(ours, name) for name in ("run", "state_root", "parent_hash")):
            raise Overtaken(
                f"{key} holds other weights, of epoch {stored.epoch}: resume and go on from those"
            )
        return stored

    def _advance(self, manifest: Manifest, blobs: Blobs) -> Manifest:
        self._last, self._base = manifest, WeightsSnapshot(version=manifest.version, blobs=blobs)
        if manifest.version % self._cadence.skip == 0:
            self._milestone = self._base
        return manifest

    def _start(self) -> Epoch:
        """Return our epoch, which is taken on first use; every earlier publisher is fenced from then on."""
        if self._epoch is None and self._group.rank:
            self._epoch = self._exchange.epoch()
        elif self._epoch is None:
            self._epoch = claim(self._objects, self._keys, self._group.job)
        return self._epoch

    def _reader(self) -> Subscriber:
        return Subscriber(self._objects, self._keys.prefix)

    def _check_fence(self) -> None:
        try:
            check_newest(self._objects, self._keys, self._start())
        except Fenced as error:
            self._fenced = error
            raise

    def _check_order(self, version: int) -> None:
        if self._fenced is not None:
            raise self._fenced
        self._check_fence()
        head = self._reader().head() if self._last is None else self.version
        # Before its first commit a publisher may repeat a version of its predecessor; equal weights succeed.
        repeats = self._last is None and head is not None and 0 <= version <= head
        if version < 0 or (head is not None and version != head + 1 and not repeats):
            raise OutOfOrder(f"version {version} cannot follow version {head}: versions have no gaps")
