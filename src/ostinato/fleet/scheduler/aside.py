"""A node for whoever has waited too long: nothing else starts there until the pod fits.

Small pods take what becomes free before there is enough of it for a large one, on every node. So one that has
found no room for AFTER_S gets a node set aside. What runs there ends by its time at the latest; then the pod
fits, if it fits on the node at all. Batch schedulers do the same for the first in their queue (EASY
backfilling, Lifka, JSSPP 1995).
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from ostinato.fleet.scheduler.cluster import Cluster
from ostinato.fleet.scheduler.node import Node, Reservation
from ostinato.fleet.scheduler.pod import How, Reason, Request

AFTER_S = 15.0
"""How long a pod looks for room among all others: what is small finds some sooner."""
KEPT_S = 1.0
"""How often one looks for whom a node is set aside: it stands idle meanwhile."""
MOST_SHARE = 1 / 8
"""Of all nodes, how many may be set aside at a time; one always."""


@dataclass(slots=True, kw_only=True)
class _Wait:
    """One who found no room."""

    request: Request
    since: float
    node: str | None = None
    in_vain: set[str] = field(default_factory=set)
    """Nodes that were empty and yet did not take it: something else uses them."""


class Aside:
    """Those who found no room, in the order in which they first found none, and the nodes kept for them."""

    def __init__(self, clock: Callable[[], float], cluster: Cluster) -> None:
        self._clock = clock
        self._cluster = cluster
        self._waits: dict[str, _Wait] = {}

    def node_of(self, pod: str) -> Node | None:
        """The node that is kept for a pod."""
        wait = self._waits.get(pod)
        name = None if wait is None else wait.node
        return self._cluster.nodes[name] if name and self._cluster.aside.get(name) == pod else None

    def finds_no_room(self, request: Request) -> bool:
        """The pod was refused, by the node kept for it as well; answers whether there is one."""
        wait = self._waits.setdefault(request.id, _Wait(request=request, since=self._clock()))
        node = self.node_of(request.id)
        if node is None:
            return False
        if node.rests() and self._cluster.refuses(node, request, How.COLD) is Reason.FULL:
            wait.in_vain.add(node.name)
            self._cluster.give_back(node)
        return True

    def untaken(self) -> list[Reservation]:
        """Warm pods on nodes that are set aside: nobody will take them there."""
        kept = [pod for name in self._cluster.aside for pod in self._cluster.nodes[name].pods.values()]
        return [pod for pod in kept if pod.pooled and pod.running_since is not None]

    def settle(self, waiting: Container[str]) -> None:
        """Gives back the nodes of those who no longer wait, and sets some aside for those who do."""
        for pod in [pod for pod in self._waits if pod not in waiting]:
            node = self.node_of(pod)
            del self._waits[pod]
            if node is not None:
                self._cluster.give_back(node)
        room = max(1, int(len(self._cluster.nodes) * MOST_SHARE)) - len(self._cluster.aside)
        for pod, wait in self._waits.items():
            if room <= 0 or wait.since > self._clock() - AFTER_S:
                break  # who comes later has waited less
            if self.node_of(pod) is None and (node := self._nearest(wait)) is not None:
                wait.node = node.name
                self._cluster.set_aside(node, pod)
                room -= 1

    def _nearest(self, wait: _Wait) -> Node | None:
        """The node where least must end for the pod to fit."""
        wish = wait.request
        could = [
            node
            for node in self._cluster
            if wish.only_on in (None, node.name)
            and wish.size.within(node.room)
            and node.name not in wait.in_vain
            and node.name not in self._cluster.aside
        ]
        return min(could, key=lambda node: node.lacks(wish.size), default=None)
