"""The nouns of scheduling: what is asked for, what is answered, what a machine says of itself.

A pod is one sandbox as the scheduler sees it: a name, a size and a time to live.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

SCORING_S = 120.0
"""How long a pod outlives its deadline, so that what it did can be scored."""


class Size(NamedTuple):
    """What a pod may use or a node has. Whole numbers, so that sums never drift.

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
        """Whether it fits into `other` in every direction."""
        return self[0] <= other[0] and self[1] <= other[1] and self[2] <= other[2]


NOTHING = Size(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A pod that somebody wants. Asking again with the same `id` gives the same answer, never a second pod.

    >>> Request(id="p1", template="python", size=Size(500, 512, 64), deadline_s=60.0).ttl_s
    180.0
    """

    id: str
    template: str
    size: Size
    deadline_s: float
    """Seconds until the work in it must be done; scoring follows."""
    parent: str | None = None
    """The pod to fork from."""
    only_on: str | None = None
    """The only node that can: it holds the snapshot to start from."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.size) < 0 or self.deadline_s <= 0:
            raise ValueError(
                f"pod {self.id!r} asks for {self.size} and {self.deadline_s} s: both must be positive"
            )

    @property
    def ttl_s(self) -> float:
        """Seconds it may live: a deadline that ended the pod would end the scoring with it."""
        return self.deadline_s + SCORING_S


class How(StrEnum):
    """How a pod comes to be."""

    COLD = "cold"  # started from its template
    WARM = "warm"  # was started before anybody asked
    FORK = "fork"  # copied from its parent, on the parent's node
    MOVE = "move"  # copied from its parent to another node


class Reason(StrEnum):
    """Why a pod is refused. The last three are not cured by waiting."""

    LINE = "line"  # others asked before
    FULL = "full"  # no node has room
    STARTS = "starts"  # nodes have room, but no CPU left to start one more
    FAILING = "failing"  # the template's last starts failed
    NO_NODES = "no_nodes"
    TOO_LARGE = "too_large"  # larger than any node
    NO_PARENT = "no_parent"
    OVER = "over"  # a pod of this id has already ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The pod has a place, which is held for it until it ends.

    >>> Placed(pod="p1", node="n1", how=How.COLD).source
    ''
    """

    pod: str
    node: str
    how: How
    source: str = ""
    """The warm pod to take over, or the parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No place now: come back with the same id after `retry_after_s`; None means never.

    >>> Refused(pod="p1", reason=Reason.FULL, retry_after_s=2.5).retry_after_s
    2.5
    """

    pod: str
    reason: Reason
    retry_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """To a node: start a pod for the warm pool.

    >>> Start(pod="warm-1", node="n1", template="python").pod
    'warm-1'
    """

    pod: str
    node: str
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """To a node: end a pod, and say why.

    >>> Kill(pod="p1", node="n1", why="its time is over").node
    'n1'
    """

    pod: str
    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """To whoever asked for the pod: it is gone, and it was not they who ended it.

    >>> Lost(pod="p1", node="n1", why="the node is silent").pod
    'p1'
    """

    pod: str
    node: str
    why: str


Action = Start | Kill | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What a node measures of itself. Shares are of its whole, stalls are the kernel's PSI `some avg10`.

    >>> Pressure(cpu=0.5, memory=0.25, disk=0.1).stalls
    ()
    """

    cpu: float
    """Busy share of all cores, by whatever runs there."""
    memory: float
    disk: float
    stalls: tuple[float, ...] = ()
    """Share of time in which something waited for CPU, memory and disk; empty where the kernel has no PSI."""


IDLE = Pressure(cpu=0.0, memory=0.0, disk=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A pod as its node reports it, with all a scheduler needs that has never heard of it.

    >>> request = Request(id="p1", template="python", size=Size(500, 512, 64), deadline_s=60.0)
    >>> Running(request=request, age_s=3.0).pooled
    False
    """

    request: Request
    age_s: float
    pooled: bool = False
    """Started for the warm pool and taken by nobody yet."""
