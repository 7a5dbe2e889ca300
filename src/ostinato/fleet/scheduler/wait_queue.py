"""The queue of refused clients: their order, and the time at which each should ask again.

A refused client holds nothing but its place in the queue. It gets a time at which the queue will have moved
up, by the rate at which sandboxes get room, so that clients come as room appears and not all at once. A
client that does not come back loses its place.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

EAGER = 1.25
"""The time by which clients should come early, since room must not wait for them."""
AT_ONCE_S = 1.0
"""The front of the queue that may try at the same time: as many as are served in this many seconds."""
SOONEST_S, LATEST_S = 0.25, 60.0
CHECKS_PER_S = 200.0
"""The rate at which all waiting clients together may ask; short waits correct bad forecasts."""
AT_LEAST_LATEST_S = 1.0
PATIENCE_S = 3.0
"""The time for which a place is kept beyond its turn, besides a quarter of the wait."""
RETRY_S, MOST_DOUBLINGS = 0.5, 5
"""First wait of a client that was first and still found no room; the wait doubles at most so many times."""


@dataclass(slots=True)
class _Place:
    ahead: int
    departures_before: int
    lost_at: float
    tries: int = 0


class WaitQueue:
    """Places by sandbox id. A client that leaves counts as the one at the front, as it nearly always is."""

    def __init__(self, clock: Callable[[], float], chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance
        self._places: dict[str, _Place] = {}
        self._departures = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, sandbox: object) -> bool:
        return sandbox in self._places

    def ahead_of(self, sandbox: str) -> int:
        """Return how many clients come before this one."""
        place = self._places.get(sandbox)
        if place is None:
            return len(self._places)
        return max(0, place.ahead - (self._departures - place.departures_before))

    def must_wait(self, sandbox: str, per_s: float, room_for: float) -> bool:
        """Return True if the clients ahead will need the room there is now and the room that comes soon.

        `per_s` is the rate at which sandboxes get room, `room_for` how many there is room for now.
        """
        ahead = self.ahead_of(sandbox)
        at_once = per_s * AT_ONCE_S if sandbox in self._places else 0.0
        return ahead > 0 and ahead >= max(at_once, room_for)

    def wait(self, sandbox: str, per_s: float, room_for: float = 0.0) -> float:
        """Take or keep a place and return the seconds until the client should ask again.

        Clients ahead that already have room are not counted.
        """
        short = max(self.ahead_of(sandbox) + 1 - room_for, 0.0)
        needed = short / (per_s * EAGER) if per_s > 0 else math.inf
        place = self._places.setdefault(
            sandbox, _Place(ahead=len(self), departures_before=self._departures, lost_at=0.0)
        )
        return self._bounded(place, needed * self._chance.uniform(0.9, 1.1))

    def wait_again(self, sandbox: str, per_s: float) -> float:
        """Return the wait of a client whose turn had come, but that found no room."""
        if sandbox not in self._places:
            return self.wait(sandbox, per_s)
        place = self._places[sandbox]
        backoff = RETRY_S * 2.0 ** min(place.tries, MOST_DOUBLINGS) * self._chance.uniform(0.75, 1.25)
        place.tries += 1
        return self._bounded(place, backoff)

    def leave(self, sandbox: str) -> None:
        if self._places.pop(sandbox, None) is not None:
            self._departures += 1

    def forget_absent(self) -> None:
        """Drop the places of clients that did not come back in time."""
        now = self._clock()
        for sandbox in [sandbox for sandbox, place in self._places.items() if place.lost_at < now]:
            self.leave(sandbox)

    def _bounded(self, place: _Place, wait_s: float) -> float:
        latest = min(max(len(self) / CHECKS_PER_S, AT_LEAST_LATEST_S), LATEST_S)
        wait_s = min(max(wait_s, SOONEST_S), latest)
        place.lost_at = self._clock() + wait_s + PATIENCE_S + wait_s / 4
        return wait_s


class EventRate:
    """Events per second; those of `window_s` seconds ago count half."""

    def __init__(self, clock: Callable[[], float], window_s: float = 10.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._sum = 0.0
        self._at = clock()

    def add(self) -> None:
        self._decay()
        self._sum += 1

    def per_s(self) -> float:
        """Return the rate: the decayed sum of a steady rate r is r·window/ln 2."""
        self._decay()
        return self._sum * math.log(2) / self._window_s

    def _decay(self) -> None:
        now = self._clock()
        self._sum *= 2.0 ** ((self._at - now) / self._window_s)
        self._at = now
