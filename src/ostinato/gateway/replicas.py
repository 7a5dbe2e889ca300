"""The replicas behind the arms: how busy each one is, which are away, and which one serves a session.

A session stays on one replica, whose prefix cache holds its prompt, until that one is away or has clearly
more requests than the others.
"""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

BALANCE = 1.25
"""The load of a replica, over the mean of its pool, from which on sessions go to the next one in their order
(consistent hashing with bounded loads, https://arxiv.org/abs/1608.01350)."""
FIRST_AWAY_S, LONGEST_AWAY_S = 0.5, 30.0
"""The time that a replica is left alone after a failure; twice as long after each further one."""
MOST_DOUBLINGS = 6
"""The doublings that reach LONGEST_AWAY_S; a power of every count of failures would overflow a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """What a gateway knows of a replica.

    >>> ReplicaState(running=2, away=False).running
    2
    """

    running: int
    """Requests of this gateway that it is working on."""
    away: bool


class Replicas:
    """The state of all replicas that this process sends requests to, by URL."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._back_at: dict[str, float] = {}

    @contextmanager
    def lease(self, session_id: str, pool: Sequence[str]) -> Iterator[str]:
        """Choose a replica for one request, and count the request while the block runs."""
        url = self.choose(session_id, pool)
        self._running[url] += 1
        try:
            yield url
        finally:
            self._running[url] -= 1
            if not self._running[url]:
                del self._running[url]

    def choose(self, session_id: str, pool: Sequence[str]) -> str:
        """Return the first replica in the session's order that is there and not overloaded.

        When all are away, return the first one. Raises ValueError for an empty pool.
        """
        if not pool:
            raise ValueError("an arm needs at least one engine")
        if len(pool) == 1:
            return pool[0]
        here = [url for url in pool if not self.is_away(url)] or list(pool)
        most = math.ceil(BALANCE * (sum(self._running[url] for url in here) + 1) / len(here))
        ordered = sorted(here, key=lambda url: _place(session_id, url))
        return next(url for url in ordered if self._running[url] < most)

    def failed(self, url: str) -> None:
        """Leave a replica alone for a while."""
        self._failures[url] += 1
        wait = min(FIRST_AWAY_S * 2 ** min(self._failures[url] - 1, MOST_DOUBLINGS), LONGEST_AWAY_S)
        self._back_at[url] = self._clock() + wait

    def answered(self, url: str) -> None:
        """Note that a replica is there."""
        self._failures.pop(url, None)
        self._back_at.pop(url, None)

    def is_away(self, url: str) -> bool:
        return self._clock() < self._back_at.get(url, -math.inf)

    def states(self) -> Mapping[str, ReplicaState]:
        """Return the state of every replica with requests or failures."""
        urls = sorted({*self._running, *self._back_at})
        return {url: ReplicaState(running=self._running[url], away=self.is_away(url)) for url in urls}


def _place(session_id: str, url: str) -> bytes:
    """Return the place of a replica in a session's order; it does not depend on the other replicas."""
    return hashlib.blake2b(f"{session_id}\n{url}".encode(), digest_size=8).digest()
