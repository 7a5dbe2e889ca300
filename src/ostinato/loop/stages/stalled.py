"""A trainer that has a batch and publishes nothing is taken to hang."""

import time
from collections.abc import Callable

LIMIT_S = 3600.0
"""Seconds without a version although a batch is there: the steps of large models take minutes."""


class Stalled:
    """Notices that no version came for too long, although `batch` groups were there all the while."""

    def __init__(
        self, batch: int, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._batch = batch
        self._limit_s = limit_s
        self._clock = clock
        self._version = -1
        self._since = clock()

    def notice(self, version: int, groups: int) -> bool:
        """Return True when the trainer should be started again; then its time begins anew.

        `version` is the newest one, `groups` the number that wait for the trainer or are in its step.
        """
        now = self._clock()
        if version != self._version or groups < self._batch:
            self._version, self._since = version, now
        if now - self._since < self._limit_s:
            return False
        self._since = now
        return True
