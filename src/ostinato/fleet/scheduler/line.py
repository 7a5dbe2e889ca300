"""Those who were refused and are expected back: who comes first, and when it is worth coming.

A refused client holds nothing but its place in the line. It is told to come back when the line will have
moved up, at the rate at which pods get room, so that clients come as room appears and not all at once.
Whoever does not come back loses the place.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

EAGER = 1.25
"""How much sooner than needed clients are called: room must not wait for them."""
AT_ONCE_S = 1.0
"""How much of the line may try at the same time: those whom this many seconds would serve."""
SOONEST_S, LATEST_S = 0.25, 60.0
CHECKS_PER_S = 200.0
"""How often all who wait may ask: a short line is told short times, for what is expected can be wrong."""
AT_LEAST_LATEST_S = 1.0
PATIENCE_S = 3.0
"""How long after its time a place is kept, besides a quarter of the wait."""
AGAIN_S, MOST_DOUBLINGS = 0.5, 5
"""First wait of one who was first and still found no room; it doubles, so many times at most."""


@dataclass(slots=True)
class _Place:
    ahead: int
    gone_before: int
    lost_at: float
    tries: int = 0


class Line:
    """Places by pod id. Those who leave are taken to have been at the front, as nearly all are."""

    def __init__(self, clock: Callable[[], float], chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance
        self._places: dict[str, _Place] = {}
        self._gone = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, pod: object) -> bool:
        return pod in self._places

    def ahead_of(self, pod: str) -> int:
        """How many come first."""
        place = self._places.get(pod)
        if place is None:
            return len(self._places)
        return max(0, place.ahead - (self._gone - place.gone_before))

    def must_wait(self, pod: str, per_s: float, room_for: float) -> bool:
        """Whether those ahead will take what `per_s` gives soon, and what there is room for now."""
        ahead = self.ahead_of(pod)
        at_once = per_s * AT_ONCE_S if pod in self._places else 0.0
        return ahead > 0 and ahead >= max(at_once, room_for)

    def wait(self, pod: str, per_s: float, room_for: float = 0.0) -> float:
        """Takes or keeps a place; returns the seconds until it is worth coming back.

        Nobody waits for those who were told to come and for whom there is room already.
        """
        short = max(self.ahead_of(pod) + 1 - room_for, 0.0)
        needed = short / (per_s * EAGER) if per_s > 0 else math.inf
        place = self._places.setdefault(pod, _Place(ahead=len(self), gone_before=self._gone, lost_at=0.0))
        return self._told(place, needed * self._chance.uniform(0.9, 1.1))

    def again(self, pod: str, per_s: float) -> float:
        """The same for one who was let through and found no room."""
        if pod not in self._places:
            return self.wait(pod, per_s)
        place = self._places[pod]
        backoff = AGAIN_S * 2.0 ** min(place.tries, MOST_DOUBLINGS) * self._chance.uniform(0.75, 1.25)
        place.tries += 1
        return self._told(place, backoff)

    def leave(self, pod: str) -> None:
        if self._places.pop(pod, None) is not None:
            self._gone += 1

    def forget_absent(self) -> None:
        """Drops the places of those who did not come."""
        now = self._clock()
        for pod in [pod for pod, place in self._places.items() if place.lost_at < now]:
            self.leave(pod)

    def _told(self, place: _Place, wait: float) -> float:
        latest = min(max(len(self) / CHECKS_PER_S, AT_LEAST_LATEST_S), LATEST_S)
        told = min(max(wait, SOONEST_S), latest)
        place.lost_at = self._clock() + told + PATIENCE_S + told / 4
        return told


class Flow:
    """Events a second; those of `window_s` seconds ago count half."""

    def __init__(self, clock: Callable[[], float], window_s: float = 10.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._sum = 0.0
        self._at = clock()

    def add(self) -> None:
        self._decay()
        self._sum += 1

    def per_s(self) -> float:
        """A steady rate r sums up to r·window/ln 2."""
        self._decay()
        return self._sum * math.log(2) / self._window_s

    def _decay(self) -> None:
        now = self._clock()
        self._sum *= 2.0 ** ((self._at - now) / self._window_s)
        self._at = now
