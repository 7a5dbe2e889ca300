"""A circuit breaker: an operation that keeps failing is tried seldom, and then only once at a time."""

import random
from collections.abc import Callable

THRESHOLD = 3
"""Failures in a row that open the breaker."""
FIRST_S, LONGEST_S = 1.0, 300.0


class CircuitBreaker:
    """closed ──THRESHOLD failures──► open ──wait──► one trial ──► closed, or open for twice as long.

    Waits double from FIRST_S to LONGEST_S. Each is drawn from its upper half, so that clients that wait for
    the same operation do not come back together.
    """

    def __init__(self, clock: Callable[[], float], chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._opened = 0
        self._opens_at = 0.0
        self._on_trial = False

    @property
    def closed(self) -> bool:
        return self._opened == 0

    def wait_s(self) -> float:
        """Return the seconds until the operation may be tried; 0 when it may be tried now."""
        if self._on_trial:
            return FIRST_S
        return max(0.0, self._opens_at - self._clock()) if self._opened else 0.0

    def record_try(self) -> None:
        """Record that the operation is tried; while the breaker is open that is the one trial."""
        self._on_trial = not self.closed

    def record_no_result(self) -> None:
        """Record that a try ended without showing if the operation works."""
        self._on_trial = False

    def record_success(self) -> None:
        self._failures = self._opened = 0
        self._on_trial = False

    def record_failure(self) -> None:
        self._failures += 1
        if self._failures < THRESHOLD and self.closed:
            return
        if not self.closed and not self._on_trial:
            return  # this try began before the breaker opened: it shows nothing new
        self._on_trial = False
        wait = min(FIRST_S * 2.0**self._opened, LONGEST_S)
        self._opened = min(self._opened + 1, 32)
        self._opens_at = self._clock() + wait * self._chance.uniform(0.5, 1.0)
