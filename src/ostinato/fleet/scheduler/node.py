"""One node as the scheduler sees it: its reservations, the load it reports, and its budget for starts."""

from collections.abc import Callable
from dataclasses import dataclass

from ostinato.fleet.scheduler.circuit_breaker import CircuitBreaker
from ostinato.fleet.scheduler.types import (
    IDLE,
    NOTHING,
    Placement,
    PlacementRequest,
    Pressure,
    RefusalReason,
    Size,
    StartKind,
)

BUSY = Pressure(cpu=0.85, memory=0.95, disk=0.95, stalls=(0.5, 0.1, 0.3))
"""The default load from which on a node takes no more sandboxes."""
SLOWEST_STARTS = 0.05
"""CPU seconds per second and core that go into starts however busy the node is."""
START_SHARE = 0.5
"""Share of the idle CPU that may go into starts."""
RAMP_S = 4.0
"""The longest time until a start or an end shows in the load that a node measures."""
MOST_TEMPLATES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Overcommit:
    """The factors by which a node's CPU and memory may be reserved. Disk is reserved once.

    Agents wait for the model most of the time, so cores are reserved several times over. Memory that is
    reserved more than once can run out; the measured load then stops admission, but a sandbox can still grow
    afterwards.

    >>> Overcommit().room(Size(2000, 4096, 10000))
    Size(millicores=8000, memory_mb=4096, disk_mb=10000)
    """

    cpu: float = 4.0
    memory: float = 1.0

    def room(self, capacity: Size) -> Size:
        return Size(
            int(capacity.millicores * self.cpu), int(capacity.memory_mb * self.memory), capacity.disk_mb
        )

    def expected(self, reserved: Size) -> Size:
        """Return the share of a reservation that is expected to be used: the inverse of `room`."""
        return Size(
            int(reserved.millicores / self.cpu), int(reserved.memory_mb / self.memory), reserved.disk_mb
        )


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A place on a node. There is exactly one for every sandbox that was placed and has not ended."""

    request: PlacementRequest
    node: str
    kind: StartKind
    source: str
    held: bool
    """True if the node already had the template."""
    expires_at: float
    running_since: float | None = None
    pooled: bool = False

    @property
    def placement(self) -> Placement:
        return Placement(sandbox=self.request.id, node=self.node, kind=self.kind, source=self.source)


class FleetNode:
    """The reservations on a node, its measured load, and a budget of CPU seconds for starts."""

    def __init__(
        self,
        name: str,
        *,
        capacity: Size,
        room: Size,
        busy: Pressure,
        breaker: CircuitBreaker,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.room = room
        self.reserved = NOTHING
        self.reservations: dict[str, Reservation] = {}
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
        """CPU seconds per second that may go into starts, and the CPU seconds that are left of them now."""
        self.measure(IDLE)
        self._budget_s = self.starts_per_s

    def measure(self, pressure: Pressure) -> None:
        """Take in the load that the node measured just now."""
        now = self.heard_at = self._clock()
        self._refill(now)
        for sandbox in [name for name, (since, _) in self._fresh.items() if since < now - RAMP_S]:
            del self._fresh[sandbox]
        self._judge(pressure)
        used = Size(*(int(a * b) for a, b in zip(_shares(pressure), self.capacity, strict=True)))
        if self._busy.cpu > 1:
            used = Size(0, *used[1:])  # the limit is off: the measured CPU is no reason to refuse
        self._left = self.capacity - used
        for _, size in self._fresh.values():
            self._left -= size
        cores = self.capacity.millicores / 1000
        left = START_SHARE * max(0.0, self._busy.cpu - pressure.cpu)
        self.starts_per_s = cores * max(left, SLOWEST_STARTS)

    def _judge(self, pressure: Pressure) -> None:
        """Set the flags for pressure: on the CPU it slows sandboxes, on memory or disk it ends them."""
        shares = [share >= most for share, most in zip(_shares(pressure), _shares(self._busy), strict=True)]
        stalls = [a >= b for a, b in zip(pressure.stalls, self._busy.stalls, strict=False)] or [False]
        self.cpu_pressed = shares[0] or stalls[0]
        self._pressed = any(shares[1:]) or any(stalls[1:])

    def refuses(self, size: Size, expected: Size, cost_s: float) -> RefusalReason | None:
        """Return why a sandbox of this size and expected use cannot start here now; None when it can.

        This is the innermost loop of a fleet and therefore written out. A CPU that is busy with other
        programs is no reason to refuse while no more cores are reserved than there are.
        """
        (cpu, memory, disk), reserved, room = size, self.reserved, self.room
        if reserved[0] + cpu > room[0] or reserved[1] + memory > room[1] or reserved[2] + disk > room[2]:
            return RefusalReason.FULL
        left = self._left
        if self._pressed or expected[1] > left[1] or expected[2] > left[2]:
            return RefusalReason.FULL
        if (self.cpu_pressed or expected[0] > left[0]) and reserved[0] + cpu > self.capacity[0]:
            return RefusalReason.FULL
        if cost_s > 0 and (not self.can_pay(cost_s) or self.breaker.wait_s()):
            return RefusalReason.STARTS
        return None

    def can_pay(self, cost_s: float) -> bool:
        """Return True if the budget covers `cost_s` or is full.

        A start that costs more than the budget can hold waits until it is full, and leaves it negative.
        """
        if self._budget_s < cost_s:
            self._refill(self._clock())
        return self._budget_s >= cost_s or self._budget_s >= self.starts_per_s > 0

    def _refill(self, now: float) -> None:
        if now > self._counted_at:
            earned = (now - self._counted_at) * self.starts_per_s
            self._budget_s = min(self._budget_s + earned, self.starts_per_s)
            self._counted_at = now

    def take(self, reservation: Reservation, expected: Size, cost_s: float) -> None:
        """Add a reservation and pay for its start."""
        self._fresh[reservation.request.id] = self._clock(), expected
        self._left -= expected
        self._budget_s -= cost_s
        self.hold(reservation)
        if cost_s:
            self.breaker.record_try()

    def hold(self, reservation: Reservation) -> None:
        """Add the reservation of a sandbox that already runs."""
        self.reservations[reservation.request.id] = reservation
        self.reserved += reservation.request.size

    def drop(self, sandbox: str) -> None:
        self.reserved -= self.reservations.pop(sandbox).request.size
        _, expected = self._fresh.pop(sandbox, (0.0, NOTHING))
        self._left += expected
        self._dropped_at = self._clock()

    def is_empty(self) -> bool:
        """Return True if no sandbox is here and the measured load includes none either."""
        return not self.reservations and self.heard_at > self._dropped_at + RAMP_S

    def learn(self, template: str) -> None:
        """Record that the node has a template. Of too many the least recently used counts as gone."""
        self.templates.pop(template, None)
        self.templates[template] = None
        if len(self.templates) > MOST_TEMPLATES:
            del self.templates[next(iter(self.templates))]

    def lacks(self, size: Size) -> float:
        """Return the share of the node that must become free for a sandbox of this size."""
        return max(
            (u + s - r) / r if r else 0.0 for r, u, s in zip(self.room, self.reserved, size, strict=True)
        )

    def free_share(self) -> float:
        """Return the share of the scarcest resource that is not reserved, from 0 to 1."""
        (a, b, c), (x, y, z) = self.room, self.reserved
        return 1 - max(x / a if a else 0.0, y / b if b else 0.0, z / c if c else 0.0)


def _shares(pressure: Pressure) -> tuple[float, float, float]:
    return pressure.cpu, pressure.memory, pressure.disk
