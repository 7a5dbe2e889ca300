"""Removal of objects that no reader needs: parts and extra ways of versions neither recent nor on lease.

Manifests stay, so the chain can always be checked and no key can ever be created a second time. Objects above
the head are never touched: they belong to a version that is being published.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from ostinato.store import Missing, Objects
from ostinato.sync.chain.keys import Keys, version_of
from ostinato.sync.chain.leases import Lease, give_up, leases
from ostinato.sync.chain.manifest import Way
from ostinato.sync.chain.paths import cheapest, still_useful
from ostinato.sync.errors import NotThere
from ostinato.sync.reader.download import Downloader
from ostinato.sync.reader.subscriber import Subscriber


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The number and size of the objects that one collection removed.

    >>> Collected(objects=3, bytes=2048).bytes
    2048
    """

    objects: int
    bytes: int


def collect(objects: Objects, prefix: str = "weights") -> Collected:
    """Remove everything but the ways back to the newest anchor but one, and the objects that leases need.

    A collection may run at any time and anywhere, and may be killed; two at once do no harm.
    """
    keys, reader = Keys(prefix), Subscriber(objects, prefix, leases=False)
    head = reader.head()
    if head is None:
        return Collected(objects=0, bytes=0)
    recent = still_useful(reader.manifest(head).graph)
    give_up(objects, keys, min(way.version for way in recent))
    ways = set(recent)
    for held in leases(objects, keys):
        ways |= _needed(reader, held)
    return _sweep(objects, keys, head, needed=_keys_of(ways, Downloader(objects, keys), keys))


def _needed(reader: Subscriber, held: Lease) -> set[Way]:
    """Return the ways to the version on lease, from the version its reader holds and from nothing.

    The reader takes the second when its own weights turn out to be wrong.
    """
    graph = reader.manifest(held.version).graph
    paths = (cheapest(graph, base, held.version) for base in (held.holding, None))
    return {way for path in paths for way in path or ()}


def _keys_of(ways: Iterable[Way], downloader: Downloader, keys: Keys) -> set[str]:
    needed = set()
    for way in ways:
        with suppress(NotThere):  # a region need not have every way
            needed |= {part.key for part in downloader.patch(way).parts}
        if way.beside:
            needed.add(keys.patch(way.version, way.digest))
    return needed


def _sweep(objects: Objects, keys: Keys, head: int, needed: set[str]) -> Collected:
    unneeded = {
        key: size
        for folder in keys.collectable
        for key, size in objects.sizes(folder).items()
        if key not in needed and (version := version_of(folder, key)) is not None and version <= head
    }
    for key in unneeded:
        with suppress(Missing):  # another collector was faster
            objects.delete(key)
    return Collected(objects=len(unneeded), bytes=sum(unneeded.values()))
