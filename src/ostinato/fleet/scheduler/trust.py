"""Which templates and nodes start what they should, and which of the two is to blame when one does not."""

import random
from collections.abc import Callable

from ostinato.fleet.scheduler.breaker import Breaker
from ostinato.fleet.scheduler.node import Node


class Trust:
    """A breaker for each template; a node has its own."""

    def __init__(self, clock: Callable[[], float], chance: random.Random) -> None:
        self._clock, self._chance = clock, chance
        self._templates: dict[str, Breaker] = {}
        self._worked: dict[str, float] = {}

    def of(self, template: str) -> Breaker:
        known = self._templates.get(template)
        if known is None:
            known = self._templates[template] = Breaker(self._clock, self._chance)
        return known

    def praise(self, template: str, node: Node) -> None:
        """A start that worked."""
        node.worked_at = self._worked[template] = self._clock()
        node.suspects.clear()
        node.breaker.succeeds()
        self.of(template).succeeds()

    def blame(self, template: str, node: Node) -> None:
        """The template always; the node if two templates failed there in a row, or one works elsewhere."""
        self.of(template).fails()
        node.suspects.add(template)
        if len(node.suspects) > 1 or self._worked.get(template, node.worked_at) > node.worked_at:
            node.breaker.fails()
        else:
            node.breaker.abandons()
