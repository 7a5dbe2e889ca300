"""All machines, ordered by what is left, and the choice among them."""

from collections.abc import Iterator

from ostinato.fleet.scheduler.cost import StartCosts
from ostinato.fleet.scheduler.node import Node, Overcommit
from ostinato.fleet.scheduler.pod import NOTHING, How, Reason, Request, Size

SHELVES = 128
CHOICES = 6
"""Nodes that are compared for one pod."""
AFFINITY = 0.1
"""How much fuller a node without the template must be to be chosen over one that has it, as a share."""


class Cluster:
    """Nodes on shelves by their scarcest free share. Looking starts where the pod just fits."""

    def __init__(self, costs: StartCosts, overcommit: Overcommit) -> None:
        self.overcommit = overcommit
        self.nodes: dict[str, Node] = {}
        self._costs = costs
        self._shelves: list[dict[str, Node]] = [{} for _ in range(SHELVES)]
        self._shelf_of: dict[str, int] = {}
        self.aside: dict[str, str] = {}
        """Nodes that only one pod may come to, by name: they lie on no shelf."""
        self._largest = NOTHING
        self._free_of: dict[str, Size] = {}
        self.free = NOTHING
        """What all nodes together have not promised."""

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def add(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._free_of[node.name] = NOTHING
        self._measure_largest()
        self.give_back(node)

    def remove(self, name: str) -> Node | None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._take_down(name)
            self.aside.pop(name, None)
            self.free -= self._free_of.pop(name)
            self._measure_largest()
        return node

    def set_aside(self, node: Node, pod: str) -> None:
        """Keeps a node for one pod: `find` does not see it."""
        self._take_down(node.name)
        self.aside[node.name] = pod

    def give_back(self, node: Node) -> None:
        """Everybody may come to the node again."""
        self.aside.pop(node.name, None)
        self._shelf_of[node.name] = 0
        self._shelves[0][node.name] = node
        self.moved(node)

    def _take_down(self, name: str) -> None:
        shelf = self._shelf_of.pop(name, None)
        if shelf is not None:
            del self._shelves[shelf][name]

    def _measure_largest(self) -> None:
        rooms = [node.room for node in self] or [NOTHING]
        self._largest = Size(*map(max, zip(*rooms, strict=True)))

    def moved(self, node: Node) -> None:
        """Call after every change of what a node has promised."""
        free = node.room - node.reserved
        self.free += free - self._free_of[node.name]
        self._free_of[node.name] = free
        shelf = _shelf(node.free_share())
        before = self._shelf_of.get(node.name)
        if before is not None and shelf != before:
            del self._shelves[before][node.name]
            self._shelves[shelf][node.name] = node
            self._shelf_of[node.name] = shelf

    def find(self, template: str, how: How, size: Size) -> Node | Reason:
        """The best of the first CHOICES nodes that take the pod, or why none does.

        One whose CPU is busy only where there is no other.
        STARTS when only the CPU for starting is missing somewhere, else FULL.
        """
        choices: list[Node] = []
        busy: list[Node] = []
        why = Reason.FULL
        expected = self.overcommit.expected(size)
        costs = [self._costs.expect_s(template, how, held=held) for held in (False, True)]
        for node in self._from_the_fullest(size):
            refusal = node.refuses(size, expected, costs[template in node.templates])
            if refusal is None:
                (busy if node.cpu_pressed else choices).append(node)
                if len(choices) == CHOICES:
                    break
            elif refusal is Reason.STARTS:
                why = Reason.STARTS
        if not (choices or busy):
            return why
        return max(choices or busy, key=lambda node: _fitness(node, template, size))

    def refuses(self, node: Node, request: Request, how: How) -> Reason | None:
        """Why one node does not take the pod now; None when it does."""
        if self.aside.get(node.name, request.id) != request.id:
            return Reason.FULL
        cost_s = self._costs.expect_s(request.template, how, held=request.template in node.templates)
        return node.refuses(request.size, self.overcommit.expected(request.size), cost_s)

    def _from_the_fullest(self, size: Size) -> Iterator[Node]:
        need = max(s / r if r else 0.0 for s, r in zip(size, self._largest, strict=True))
        for shelf in self._shelves[_shelf(need) :]:
            if shelf:
                yield from shelf.values()

    def starts_per_s(self) -> float:
        """CPU seconds a second that all nodes together have for starts."""
        return sum(node.starts_per_s for node in self)

    def room_for(self, size: Size) -> float:
        """How many pods of this size all that is free would hold, if it were in one place."""
        return min((f / s for f, s in zip(self.free, size, strict=True) if s), default=0.0)

    def could_ever(self, size: Size) -> bool:
        """Whether some node would take it when empty."""
        return any(size.within(node.room) for node in self)


def _shelf(share: float) -> int:
    return min(max(int(share * SHELVES), 0), SHELVES - 1)


def _fitness(node: Node, template: str, size: Size) -> float:
    """How full, and how evenly, the node would be: room left in one direction only is lost to most pods."""
    held = AFFINITY if template in node.templates else 0.0
    used = [(u + s) / r if r else 0.0 for r, u, s in zip(node.room, node.reserved, size, strict=True)]
    return sum(used) / 3 - (max(used) - min(used)) + held
