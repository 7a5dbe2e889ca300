"""A circuit breaker: what keeps failing is tried seldom, and then only once at a time."""

import random
from collections.abc import Callable

THRESHOLD = 3
"""Failures in a row that open it."""
FIRST_S, LONGEST_S = 1.0, 300.0


class Breaker:
    """closed ──THRESHOLD failures──► open ──wait──► one trial ──► closed, or open for twice as long.

    Waits double from FIRST_S to LONGEST_S; each is drawn from its upper half, so that those who wait for the
    same thing do not come back together.
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
        """Seconds until something may be tried; 0 when it may be now."""
        if self._on_trial:
            return FIRST_S
        return max(0.0, self._opens_at - self._clock()) if self._opened else 0.0

    def tries(self) -> None:
        """Something is tried; while it is open that is the one trial."""
        self._on_trial = not self.closed

    def abandons(self) -> None:
        """What was tried ended without showing anything."""
        self._on_trial = False

    def succeeds(self) -> None:
        self._failures = self._opened = 0
        self._on_trial = False

    def fails(self) -> None:
        self._failures += 1
        if self._failures < THRESHOLD and self.closed:
            return
        if not self.closed and not self._on_trial:
            return  # started before it opened: says nothing new
        self._on_trial = False
        wait = min(FIRST_S * 2.0**self._opened, LONGEST_S)
        self._opened = min(self._opened + 1, 32)
        self._opens_at = self._clock() + wait * self._chance.uniform(0.5, 1.0)
