"""Publication of one version by several ranks: each uploads its part of every patch, rank 0 merges them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ostinato.store import Missing, Objects, ObjectsError
from ostinato.sync.chain.epochs import Epoch, newest_epoch
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.manifest import Manifest, Part, Patch, TensorEntry
from ostinato.sync.chain.sealed import create_once, none_such, seal, unseal
from ostinato.sync.errors import DigestMismatch, Fenced, expect
from ostinato.sync.weights import state_root

T = TypeVar("T")
POLL_S = 0.02
LONGEST_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """One of the ranks that publish together. Each has some tensors, or rows of some (`Shard`), of its own.

    >>> RankGroup(rank=1, size=4, job="torchrun-8812").rank
    1
    """

    rank: int
    size: int
    job: str
    """The same for all ranks and different after every restart of them."""
    patience_s: float = 600.0
    """The time that a rank waits for the others before the publication fails; all may then repeat it."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} of {self.size}: ranks count from 0")


class RankExchange:
    """The exchange between ranks by objects: shares, and the manifest that says that they were taken."""

    def __init__(self, objects: Objects, keys: Keys, group: RankGroup) -> None:
        self._objects = objects
        self._keys = keys
        self._group = group

    def epoch(self) -> Epoch:
        """Return the epoch that rank 0 of this job took."""

        def taken() -> Epoch | None:
            newest = newest_epoch(self._objects, self._keys)
            return newest if newest is not None and newest.job == self._group.job else None

        return self._wait(taken, "rank 0 took no epoch")

    def share(self, epoch: Epoch, patches: Sequence[Patch]) -> None:
        """Leave this rank's patches for rank 0."""
        key = self._keys.share(patches[0].version, epoch.number, self._group.rank)
        share = {"key": key, "patches": [patch.body() for patch in patches]}
        create_once(self._objects, key, seal(share))

    def gather(self, epoch: Epoch, own: Sequence[Patch]) -> list[Patch]:
        """Return the whole patches, from the shares of all ranks.

        Raises ObjectsError when one does not come.
        """
        shares = [list(own)]
        for rank in range(1, self._group.size):
            key = self._keys.share(own[0].version, epoch.number, rank)
            shares.append(self._wait(lambda key=key: self._share(key), f"rank {rank} left no {key}"))  # type: ignore[misc]
        for rank, share in enumerate(shares):
            expect(f"the share of rank {rank}", f"{len(own)} patches", f"{len(share)} patches")
        return [_merged(rows) for rows in zip(*shares, strict=True)]

    def committed(self, version: int, epoch: Epoch, own: Sequence[Patch]) -> Manifest:
        """Return the manifest of `version` once it exists.

        Raises Fenced unless it holds this rank's share.
        """
        key = self._keys.manifest(version)
        manifest = Manifest.from_bytes(self._wait(lambda: self._get(key), f"rank 0 left no {key}"), key)
        if manifest.epoch != epoch.number or not set(own[0].parts) <= set(manifest.parts):
            raise Fenced(f"{key} was committed by another publisher: stop this one")
        return manifest

    def _share(self, key: str) -> list[Patch] | None:
        data = self._get(key)
        if data is None:
            return None
        body = unseal(data, key)
        expect("a share", key, str(body.get("key")))  # a store may return the share of another rank
        try:
            return [Patch.from_bytes(seal(patch), key) for patch in body["patches"]]
        except KeyError as error:
            raise none_such(key, data, error) from error

    def _get(self, key: str) -> bytes | None:
        try:
            return self._objects.get(key)
        except Missing:
            return None

    def _wait(self, look: Callable[[], T | None], otherwise: str) -> T:
        deadline, pause = time.monotonic() + self._group.patience_s, POLL_S
        while (result := look()) is None:
            if time.monotonic() > deadline:
                raise ObjectsError(
                    f"{otherwise} within {self._group.patience_s} s; publish the version again"
                )
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_S)
        return result


def _merged(shares: Sequence[Patch]) -> Patch:
    """Return one patch of all ranks' parts and tensors.

    Raises DigestMismatch when two ranks share a tensor.
    """
    first = shares[0]
    parts: list[Part] = []
    tensors: list[TensorEntry] = []
    for share in shares:
        tensors += [replace(entry, part=entry.part + len(parts)) for entry in share.tensors]
        parts += share.parts
        if (share.version, share.base) != (first.version, first.base):
            raise DigestMismatch("shares of a version", f"base {first.base}", f"base {share.base}")
    names = {entry.name: entry for entry in tensors}
    if len(names) < len(tensors):
        raise DigestMismatch("shares of a version", f"{len(tensors)} different tensors", f"{len(names)}")
    return Patch(
        version=first.version,
        base=first.base,
        parts=tuple(parts),
        tensors=tuple(tensors),
        state_root=state_root(names),
    )
