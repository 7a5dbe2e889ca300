"""Nodes that are dedicated to one waiting sandbox: nothing else starts there until that sandbox fits.

Small sandboxes take up resources as they become free, on every node, before enough is free for a large one.
So a sandbox that has found no room for AFTER_S gets a dedicated node. The sandboxes that still run there end
with their time at the latest; then the large one fits, if it fits on the node at all. Batch schedulers do the
same for the first job in their queue (EASY backfilling, Lifka, JSSPP 1995).
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from ostinato.fleet.scheduler.cluster import Cluster
from ostinato.fleet.scheduler.node import FleetNode, Reservation
from ostinato.fleet.scheduler.types import PlacementRequest, RefusalReason, StartKind

AFTER_S = 15.0
"""The time for which a sandbox must have looked for room on all nodes; a small one finds some sooner."""
RETRY_S = 1.0
"""The interval at which the client of a sandbox with a dedicated node asks, since the node stands idle."""
MOST_SHARE = 1 / 8
"""Share of all nodes that may be dedicated at the same time; one node always may."""


@dataclass(slots=True, kw_only=True)
class _Wait:
    request: PlacementRequest
    since: float
    node: str | None = None
    unsuitable: set[str] = field(default_factory=set)
    """Nodes that were empty and yet had no room, because programs outside our sandboxes use them."""


class DedicatedNodes:
    """The sandboxes that found no room, longest wait first, and the nodes dedicated to them."""

    def __init__(self, clock: Callable[[], float], cluster: Cluster) -> None:
        self._clock = clock
        self._cluster = cluster
        self._waits: dict[str, _Wait] = {}

    def node_of(self, sandbox: str) -> FleetNode | None:
        """Return the node that is dedicated to a sandbox."""
        wait = self._waits.get(sandbox)
        name = None if wait is None else wait.node
        return self._cluster.nodes[name] if name and self._cluster.dedicated.get(name) == sandbox else None

    def record_no_room(self, request: PlacementRequest) -> bool:
        """Record that no node had room, and return True if a node is dedicated to the sandbox nonetheless."""
        wait = self._waits.setdefault(request.id, _Wait(request=request, since=self._clock()))
        node = self.node_of(request.id)
        if node is None:
            return False
        if node.is_empty() and self._cluster.refuses(node, request, StartKind.COLD) is RefusalReason.FULL:
            wait.unsuitable.add(node.name)
            self._cluster.undedicate(node)
        return True

    def unclaimed(self) -> list[Reservation]:
        """Return the warm sandboxes on dedicated nodes: no client will claim them there."""
        nodes = [self._cluster.nodes[name] for name in self._cluster.dedicated]
        held = [reservation for node in nodes for reservation in node.reservations.values()]
        return [each for each in held if each.pooled and each.running_since is not None]

    def update(self, waiting: Container[str]) -> None:
        """Release the nodes of sandboxes that no longer wait, and dedicate nodes to those that do."""
        for sandbox in [sandbox for sandbox in self._waits if sandbox not in waiting]:
            node = self.node_of(sandbox)
            del self._waits[sandbox]
            if node is not None:
                self._cluster.undedicate(node)
        allowed = max(1, int(len(self._cluster.nodes) * MOST_SHARE)) - len(self._cluster.dedicated)
        for sandbox, wait in self._waits.items():
            if allowed <= 0 or wait.since > self._clock() - AFTER_S:
                break  # all that follow have waited less
            if self.node_of(sandbox) is None and (node := self._nearest(wait)) is not None:
                wait.node = node.name
                self._cluster.dedicate(node, sandbox)
                allowed -= 1

    def _nearest(self, wait: _Wait) -> FleetNode | None:
        """Return the node where the least must end until the sandbox fits."""
        request = wait.request
        candidates = [
            node
            for node in self._cluster
            if request.only_on in (None, node.name)
            and request.size.within(node.room)
            and node.name not in wait.unsuitable
            and node.name not in self._cluster.dedicated
        ]
        return min(candidates, key=lambda node: node.lacks(request.size), default=None)
