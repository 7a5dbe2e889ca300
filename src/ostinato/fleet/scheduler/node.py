"""One machine as the scheduler sees it: what is promised there, what it says of itself, what it may start."""

from collections.abc import Callable
from dataclasses import dataclass

from ostinato.fleet.scheduler.breaker import Breaker
from ostinato.fleet.scheduler.pod import IDLE, NOTHING, How, Pressure, Reason, Request, Size

BUSY = Pressure(cpu=0.85, memory=0.95, disk=0.95, stalls=(0.5, 0.1, 0.3))
"""At any of these a node takes no more, if nobody says otherwise."""
SLOWEST_STARTS = 0.05
"""CPU seconds a second for each core that go into starts however busy the machine is."""
START_SHARE = 0.5
"""Of the CPU that is left, how much may go into starts."""
RAMP_S = 4.0
"""How long a pod may take to show in what its node measures, or to be gone from it."""
MOST_TEMPLATES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Overcommit:
    """How many times its CPU and memory a node may promise. Disk is promised once.

    Agents wait for the model most of the time, so cores are promised several times. Memory that is promised
    more than once can run out; what is measured then stops admission, but a pod can still grow afterwards.

    >>> Overcommit().room(Size(2000, 4096, 10000))
    Size(millicores=8000, memory_mb=4096, disk_mb=10000)
    """

    cpu: float = 4.0
    memory: float = 1.0

    def room(self, capacity: Size) -> Size:
        return Size(
            int(capacity.millicores * self.cpu), int(capacity.memory_mb * self.memory), capacity.disk_mb
        )

    def expected(self, promised: Size) -> Size:
        """What of a promise is expected to be used: the inverse of `room`."""
        return Size(
            int(promised.millicores / self.cpu), int(promised.memory_mb / self.memory), promised.disk_mb
        )


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A place that is held. There is exactly one for every pod that was placed and has not ended."""

    request: Request
    node: str
    how: How
    source: str
    held: bool
    """Whether the node had the template."""
    placed_at: float
    expires_at: float
    running_since: float | None = None
    pooled: bool = False


class Node:
    """Reservations, live pressure and a budget of CPU seconds for starts."""

    def __init__(
        self,
        name: str,
        *,
        capacity: Size,
        room: Size,
        busy: Pressure,
        breaker: Breaker,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.room = room
        self.reserved = NOTHING
        self.pods: dict[str, Reservation] = {}
        self.templates: dict[str, None] = {}
        self.breaker = breaker
        self.heard_at = clock()
        self.worked_at = self.heard_at
        self.suspects: set[str] = set()
        self._dropped_at = self.heard_at
        self._clock = clock
        self._busy = busy
        self._pressed = self.cpu_pressed = False
        self._fresh: dict[str, tuple[float, Size]] = {}
        self._left = NOTHING
        self._counted_at = self.heard_at
        self.starts_per_s = self._budget_s = 0.0
        """CPU seconds a second that may go into starts, and those that have not gone yet."""
        self.measure(IDLE)
        self._budget_s = self.starts_per_s

    def measure(self, pressure: Pressure) -> None:
        """Takes in what the node measured just now."""
        now = self.heard_at = self._clock()
        self._refill(now)
        shown = [pod for pod, (since, _) in self._fresh.items() if since < now - RAMP_S]
        for pod in shown:
            del self._fresh[pod]
        self._judge(pressure)
        used = Size(*(int(a * b) for a, b in zip(_shares(pressure), self.capacity, strict=True)))
        if self._busy.cpu > 1:
            used = Size(0, *used[1:])  # what is measured of the CPU is no reason
        self._left = self.capacity - used
        for _, size in self._fresh.values():
            self._left -= size
        cores = self.capacity.millicores / 1000
        left = START_SHARE * max(0.0, self._busy.cpu - pressure.cpu)
        self.starts_per_s = cores * max(left, SLOWEST_STARTS)

    def _judge(self, pressure: Pressure) -> None:
        """What is pressed: the CPU, which only makes pods slow, or memory and disk, which end them."""
        shares = [share >= most for share, most in zip(_shares(pressure), _shares(self._busy), strict=True)]
        stalls = [a >= b for a, b in zip(pressure.stalls, self._busy.stalls, strict=False)] or [False]
        self.cpu_pressed = shares[0] or stalls[0]
        self._pressed = any(shares[1:]) or any(stalls[1:])

    def refuses(self, size: Size, expected: Size, cost_s: float) -> Reason | None:
        """Why a pod of this size, expected to use so much, cannot start here now; None when it can.

        The innermost loop of a fleet: written out. What others do with the CPU keeps nobody from it while our
        pods are promised no more than there is.
        """
        (cpu, memory, disk), promised, room = size, self.reserved, self.room
        if promised[0] + cpu > room[0] or promised[1] + memory > room[1] or promised[2] + disk > room[2]:
            return Reason.FULL
        left = self._left
        if self._pressed or expected[1] > left[1] or expected[2] > left[2]:
            return Reason.FULL
        if (self.cpu_pressed or expected[0] > left[0]) and promised[0] + cpu > self.capacity[0]:
            return Reason.FULL
        if cost_s > 0 and (not self.can_pay(cost_s) or self.breaker.wait_s()):
            return Reason.STARTS
        return None

    def can_pay(self, cost_s: float) -> bool:
        """Whether the budget has `cost_s`, or is full: a start dearer than a second's budget must wait for
        that, and is owed afterwards."""
        if self._budget_s < cost_s:
            self._refill(self._clock())
        return self._budget_s >= cost_s or self._budget_s >= self.starts_per_s > 0

    def _refill(self, now: float) -> None:
        if now > self._counted_at:
            earned = (now - self._counted_at) * self.starts_per_s
            self._budget_s = min(self._budget_s + earned, self.starts_per_s)
            self._counted_at = now

    def take(self, pod: Reservation, expected: Size, cost_s: float) -> None:
        """Hold a place, and pay for the start."""
        self._fresh[pod.request.id] = self._clock(), expected
        self._left -= expected
        self._budget_s -= cost_s
        self.hold(pod)
        if cost_s:
            self.breaker.tries()

    def hold(self, pod: Reservation) -> None:
        """Hold a place for what is there already."""
        self.pods[pod.request.id] = pod
        self.reserved += pod.request.size

    def drop(self, pod: str) -> None:
        self.reserved -= self.pods.pop(pod).request.size
        _, expected = self._fresh.pop(pod, (0.0, NOTHING))
        self._left += expected
        self._dropped_at = self._clock()

    def rests(self) -> bool:
        """Whether nothing of ours is here, and what was measured is not ours any more either."""
        return not self.pods and self.heard_at > self._dropped_at + RAMP_S

    def learn(self, template: str) -> None:
        """The template is here now; the one used longest ago is taken to be gone when there are many."""
        self.templates.pop(template, None)
        self.templates[template] = None
        if len(self.templates) > MOST_TEMPLATES:
            del self.templates[next(iter(self.templates))]

    def lacks(self, size: Size) -> float:
        """How much must become free for a pod of this size, as a share of the node."""
        return max(
            (u + s - r) / r if r else 0.0 for r, u, s in zip(self.room, self.reserved, size, strict=True)
        )

    def free_share(self) -> float:
        """The scarcest thing's share that is not promised, from 0 to 1; negative never by our doing."""
        (a, b, c), (x, y, z) = self.room, self.reserved
        return 1 - max(x / a if a else 0.0, y / b if b else 0.0, z / c if c else 0.0)


def _shares(pressure: Pressure) -> tuple[float, float, float]:
    return pressure.cpu, pressure.memory, pressure.disk
