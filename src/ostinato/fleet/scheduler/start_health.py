"""The record of starts by template and node: it decides against which of the two a failure counts."""

import random
from collections.abc import Callable

from ostinato.fleet.scheduler.circuit_breaker import CircuitBreaker
from ostinato.fleet.scheduler.node import FleetNode


class StartHealth:
    """A circuit breaker for each template; each node has its own."""

    def __init__(self, clock: Callable[[], float], chance: random.Random) -> None:
        self._clock, self._chance = clock, chance
        self._templates: dict[str, CircuitBreaker] = {}
        self._worked: dict[str, float] = {}

    def of(self, template: str) -> CircuitBreaker:
        known = self._templates.get(template)
        if known is None:
            known = self._templates[template] = CircuitBreaker(self._clock, self._chance)
        return known

    def record_success(self, template: str, node: FleetNode) -> None:
        node.worked_at = self._worked[template] = self._clock()
        node.suspects.clear()
        node.breaker.record_success()
        self.of(template).record_success()

    def record_failure(self, template: str, node: FleetNode) -> None:
        """Count a failure against the template, and against the node if the node is suspect too.

        The node is suspect if two templates failed on it in a row, or if the template works on other nodes.
        """
        self.of(template).record_failure()
        node.suspects.add(template)
        if len(node.suspects) > 1 or self._worked.get(template, node.worked_at) > node.worked_at:
            node.breaker.record_failure()
        else:
            node.breaker.record_no_result()
