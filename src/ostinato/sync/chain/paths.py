"""Pure functions on the version graph: the cheapest path, and the ways that the next version should offer."""

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count

from ostinato.sync.chain.manifest import Manifest, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """The distances between versions that offer an anchor or a skip beside their delta.

    >>> Cadence().anchor_every
    25
    """

    anchor_every: int = 25
    """Versions from one anchor to the next; an anchor comes sooner once the deltas exceed half of one."""
    skip: int = 8
    """Versions that one patch spans, so that a reader that fell behind needs fewer bytes."""

    def anchor_due(self, last: Manifest) -> bool:
        """Return True when the version after `last` should offer an anchor beside its delta."""
        anchor = newest_anchor(last.graph)
        if anchor is None:
            return True
        since = [way for way in last.graph if way.version > anchor.version and not way.beside]
        return (
            last.version + 1 - anchor.version >= self.anchor_every
            or 2 * sum(way.bytes for way in since) > anchor.bytes
        )


def cheapest(
    ways: Iterable[Way], held: int | None, target: int, without: Collection[str] = ()
) -> tuple[Way, ...] | None:
    """Return the path from `held`, or from nothing, to `target` that needs the fewest bytes, in order of use.

    Among equals it is the path with the fewest ways. `without` holds digests of ways not to take. Return None
    if there is no path.
    """
    into: dict[int, list[Way]] = {}
    for way in ways:
        if way.digest not in without:
            into.setdefault(way.version, []).append(way)
    order = count()  # so that paths of equal cost are never compared
    queue: list[tuple[int, int, int, int, tuple[Way, ...]]] = [(0, 0, next(order), target, ())]
    visited: set[int] = set()
    while queue:
        cost, hops, _, at, path = heapq.heappop(queue)
        if at in {held, _NOTHING}:
            return path
        if at not in visited:
            visited.add(at)
            for way in into.get(at, ()):
                base = _NOTHING if way.base is None else way.base
                heapq.heappush(queue, (cost + way.bytes, hops + 1, next(order), base, (way, *path)))
    return None


def newest_anchor(ways: Iterable[Way]) -> Way | None:
    return max((way for way in ways if way.base is None), key=lambda way: way.version, default=None)


def still_useful(ways: Iterable[Way]) -> tuple[Way, ...]:
    """Return the ways from the newest anchor but one on: readers may still take them, so they are kept."""
    rows = tuple(ways)
    anchors = sorted({way.version for way in rows if way.base is None})
    oldest = anchors[-2:][0] if anchors else 0
    return tuple(w for w in rows if w.version >= oldest and (w.base is None or w.base >= oldest))


_NOTHING = -1
