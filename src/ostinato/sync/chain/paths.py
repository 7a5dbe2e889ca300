"""The version graph: which way is cheapest, which ways the next version should offer. Pure functions."""

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count

from ostinato.sync.chain.manifest import Manifest, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often a version can be reached otherwise than from the one before.

    >>> Cadence().anchor_every
    25
    """

    anchor_every: int = 25
    """Versions from one anchor to the next; sooner once the deltas since exceed half an anchor."""
    skip: int = 8
    """Every so many versions one patch spans them all: one whom we lost needs fewer bytes."""

    def anchor_due(self, last: Manifest) -> bool:
        """Whether the version after `last` should offer an anchor beside its delta."""
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
    """The ways from `held` (or from nothing) to `target` that need the fewest bytes, in order of use; of
    equals the fewest. None if there is none. `without` are digests of ways not to take.
    """
    into: dict[int, list[Way]] = {}
    for way in ways:
        if way.digest not in without:
            into.setdefault(way.version, []).append(way)
    order = count()  # so that equal costs never compare paths
    queue: list[tuple[int, int, int, int, tuple[Way, ...]]] = [(0, 0, next(order), target, ())]
    seen: set[int] = set()
    while queue:
        cost, hops, _, at, path = heapq.heappop(queue)
        if at in {held, _NOTHING}:
            return path
        if at not in seen:
            seen.add(at)
            for way in into.get(at, ()):
                base = _NOTHING if way.base is None else way.base
                heapq.heappush(queue, (cost + way.bytes, hops + 1, next(order), base, (way, *path)))
    return None


def newest_anchor(ways: Iterable[Way]) -> Way | None:
    return max((way for way in ways if way.base is None), key=lambda way: way.version, default=None)


def still_useful(ways: Iterable[Way]) -> tuple[Way, ...]:
    """Those from the newest anchor but one on: what readers may still come by, and collecting spares."""
    rows = tuple(ways)
    anchors = sorted({way.version for way in rows if way.base is None})
    oldest = anchors[-2:][0] if anchors else 0
    return tuple(w for w in rows if w.version >= oldest and (w.base is None or w.base >= oldest))


_NOTHING = -1
