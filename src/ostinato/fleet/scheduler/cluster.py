"""All nodes, ordered by the resources that are left, and the choice among them."""

from collections.abc import Iterator

from ostinato.fleet.scheduler.cost import StartCosts
from ostinato.fleet.scheduler.node import FleetNode, Overcommit
from ostinato.fleet.scheduler.types import NOTHING, PlacementRequest, RefusalReason, Size, StartKind

SHELVES = 128
CHOICES = 6
"""Nodes that are compared for one sandbox."""
AFFINITY = 0.1
"""The share by which a node without the template must be fuller to be preferred to one that has it."""


class Cluster:
    """Nodes on shelves by the free share of their scarcest resource; a search begins with full ones."""

    def __init__(self, costs: StartCosts, overcommit: Overcommit) -> None:
        self.overcommit = overcommit
        self.nodes: dict[str, FleetNode] = {}
        self._costs = costs
        self._shelves: list[dict[str, FleetNode]] = [{} for _ in range(SHELVES)]
        self._shelf_of: dict[str, int] = {}
        self.dedicated: dict[str, str] = {}
        """The only sandbox that may start on a node, by the node's name. Such nodes lie on no shelf."""
        self._largest = NOTHING
        self._free_of: dict[str, Size] = {}
        self.free = NOTHING
        """The resources of all nodes together that are not reserved."""

    def __iter__(self) -> Iterator[FleetNode]:
        return iter(self.nodes.values())

    def add(self, node: FleetNode) -> None:
        self.nodes[node.name] = node
        self._free_of[node.name] = NOTHING
        self._measure_largest()
        self.undedicate(node)

    def remove(self, name: str) -> FleetNode | None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._take_from_shelf(name)
            self.dedicated.pop(name, None)
            self.free -= self._free_of.pop(name)
            self._measure_largest()
        return node

    def dedicate(self, node: FleetNode, sandbox: str) -> None:
        """Keep a node for one sandbox: `find` does not see it any more."""
        self._take_from_shelf(node.name)
        self.dedicated[node.name] = sandbox

    def undedicate(self, node: FleetNode) -> None:
        """Open the node to all sandboxes again."""
        self.dedicated.pop(node.name, None)
        self._shelf_of[node.name] = 0
        self._shelves[0][node.name] = node
        self.update(node)

    def _take_from_shelf(self, name: str) -> None:
        shelf = self._shelf_of.pop(name, None)
        if shelf is not None:
            del self._shelves[shelf][name]

    def _measure_largest(self) -> None:
        rooms = [node.room for node in self] or [NOTHING]
        self._largest = Size(*map(max, zip(*rooms, strict=True)))

    def update(self, node: FleetNode) -> None:
        """Put a node on the right shelf. Call this after every change of its reservations."""
        free = node.room - node.reserved
        self.free += free - self._free_of[node.name]
        self._free_of[node.name] = free
        shelf = _shelf(node.free_share())
        before = self._shelf_of.get(node.name)
        if before is not None and shelf != before:
            del self._shelves[before][node.name]
            self._shelves[shelf][node.name] = node
            self._shelf_of[node.name] = shelf

    def find(self, template: str, kind: StartKind, size: Size) -> FleetNode | RefusalReason:
        """Return the best of the first CHOICES nodes that take the sandbox, or the reason why none does.

        A node with a busy CPU is returned only if there is no other. The reason is STARTS when at least one
        node lacks nothing but the CPU for starting, else FULL.
        """
        choices: list[FleetNode] = []
        busy: list[FleetNode] = []
        reason = RefusalReason.FULL
        expected = self.overcommit.expected(size)
        costs = [self._costs.expect_s(template, kind, held=held) for held in (False, True)]
        for node in self._fullest_first(size):
            refusal = node.refuses(size, expected, costs[template in node.templates])
            if refusal is None:
                (busy if node.cpu_pressed else choices).append(node)
                if len(choices) == CHOICES:
                    break
            elif refusal is RefusalReason.STARTS:
                reason = RefusalReason.STARTS
        if not (choices or busy):
            return reason
        return max(choices or busy, key=lambda node: _fitness(node, template, size))

    def refuses(self, node: FleetNode, request: PlacementRequest, kind: StartKind) -> RefusalReason | None:
        """Return the reason why one node does not take the sandbox now; None when it does."""
        if self.dedicated.get(node.name, request.id) != request.id:
            return RefusalReason.FULL
        cost_s = self._costs.expect_s(request.template, kind, held=request.template in node.templates)
        return node.refuses(request.size, self.overcommit.expected(request.size), cost_s)

    def _fullest_first(self, size: Size) -> Iterator[FleetNode]:
        need = max(s / r if r else 0.0 for s, r in zip(size, self._largest, strict=True))
        for shelf in self._shelves[_shelf(need) :]:
            if shelf:
                yield from shelf.values()

    def starts_per_s(self) -> float:
        """Return the CPU seconds per second that all nodes together have for starts."""
        return sum(node.starts_per_s for node in self)

    def room_for(self, size: Size) -> float:
        """Return how many sandboxes of this size the free resources would hold if they were on one node."""
        return min((f / s for f, s in zip(self.free, size, strict=True) if s), default=0.0)

    def could_ever(self, size: Size) -> bool:
        """Return True if at least one node would take the sandbox when empty."""
        return any(size.within(node.room) for node in self)


def _shelf(share: float) -> int:
    return min(max(int(share * SHELVES), 0), SHELVES - 1)


def _fitness(node: FleetNode, template: str, size: Size) -> float:
    """Return how full, and how evenly, the node would be.

    If only one resource is left over, most sandboxes can make no use of it.
    """
    held = AFFINITY if template in node.templates else 0.0
    used = [(u + s) / r if r else 0.0 for r, u, s in zip(node.room, node.reserved, size, strict=True)]
    return sum(used) / 3 - (max(used) - min(used)) + held
