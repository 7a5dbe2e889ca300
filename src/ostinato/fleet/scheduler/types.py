"""The nouns of scheduling: placement requests, the scheduler's responses, and what nodes report.

To the scheduler a sandbox is an id, a size and a time to live.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

SCORING_S = 120.0
"""The time by which a sandbox outlives its deadline, so that its work can be scored."""


class Size(NamedTuple):
    """The resources that a sandbox may use or that a node has. Whole numbers, so that sums never drift.

    >>> Size(millicores=500, memory_mb=512, disk_mb=64) + Size(500, 512, 64)
    Size(millicores=1000, memory_mb=1024, disk_mb=128)
    """

    millicores: int
    memory_mb: int
    disk_mb: int

    def __add__(self, other: tuple[int, ...]) -> "Size":  # type: ignore[override]  # sums, never joins
        return Size(self[0] + other[0], self[1] + other[1], self[2] + other[2])

    def __sub__(self, other: "Size") -> "Size":
        return Size(self[0] - other[0], self[1] - other[1], self[2] - other[2])

    def within(self, other: "Size") -> bool:
        """Return True if this size fits into `other` in all three resources."""
        return self[0] <= other[0] and self[1] <= other[1] and self[2] <= other[2]


NOTHING = Size(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """A sandbox that a client wants. The same `id` again gets the same response, never a second sandbox.

    >>> PlacementRequest(id="s1", template="python", size=Size(500, 512, 64), deadline_s=60.0).ttl_s
    180.0
    """

    id: str
    template: str
    size: Size
    deadline_s: float
    """Seconds until the work in the sandbox must be done; scoring follows."""
    parent: str | None = None
    """The sandbox to fork from."""
    only_on: str | None = None
    """The only possible node, because it holds the snapshot to start from."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.size) < 0 or self.deadline_s <= 0:
            raise ValueError(
                f"sandbox {self.id!r} requests {self.size} and {self.deadline_s} s: both must be positive"
            )

    @property
    def ttl_s(self) -> float:
        """Seconds that the sandbox may live: if it ended at its deadline, it could not be scored."""
        return self.deadline_s + SCORING_S


class StartKind(StrEnum):
    """The ways in which a sandbox starts."""

    COLD = "cold"  # started from its template
    WARM = "warm"  # taken from a warm pool
    FORK = "fork"  # copied from its parent, on the parent's node
    MOVE = "move"  # copied from its parent to another node


class RefusalReason(StrEnum):
    """The reasons to refuse a sandbox. Waiting does not help against the last three."""

    QUEUED = "queued"  # other requests came first
    FULL = "full"  # no node has room
    STARTS = "starts"  # nodes have room, but no CPU left to start one more
    FAILING = "failing"  # the template's last starts failed
    NO_NODES = "no_nodes"
    TOO_LARGE = "too_large"  # larger than any node
    NO_PARENT = "no_parent"
    ENDED = "ended"  # a sandbox of this id has already ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A place on a node, which is held for the sandbox until it ends.

    >>> Placement(sandbox="s1", node="n1", kind=StartKind.COLD).source
    ''
    """

    sandbox: str
    node: str
    kind: StartKind
    source: str = ""
    """The warm sandbox to take over, or the parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No place now: the client may ask with the same id after `retry_after_s`; None means never.

    >>> Refusal(sandbox="s1", reason=RefusalReason.FULL, retry_after_s=2.5).retry_after_s
    2.5
    """

    sandbox: str
    reason: RefusalReason
    retry_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWarm:
    """An order to a node: start a sandbox for a warm pool."""

    sandbox: str
    node: str
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """An order to a node: end a sandbox.

    >>> Kill(sandbox="s1", node="n1", why="its time is over").node
    'n1'
    """

    sandbox: str
    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A message to the client of a sandbox: it is gone, though the client did not end it."""

    sandbox: str
    node: str
    why: str


Action = StartWarm | Kill | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The load that a node measures. Shares are of the whole node, stalls are the kernel's PSI `some avg10`.

    >>> Pressure(cpu=0.5, memory=0.25, disk=0.1).stalls
    ()
    """

    cpu: float
    """Busy share of all cores, by any process on the node."""
    memory: float
    disk: float
    stalls: tuple[float, ...] = ()
    """Share of time in which a task waited for CPU, memory and disk; empty where the kernel has no PSI."""


IDLE = Pressure(cpu=0.0, memory=0.0, disk=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSandbox:
    """A sandbox as its node reports it, complete enough for a scheduler that does not know it.

    >>> request = PlacementRequest(id="s1", template="python", size=Size(500, 512, 64), deadline_s=60.0)
    >>> ReportedSandbox(request=request, age_s=3.0).pooled
    False
    """

    request: PlacementRequest
    age_s: float
    pooled: bool = False
    """Started for a warm pool, and no client has it yet."""
