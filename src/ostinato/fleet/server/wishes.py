"""What a client wants, what it is told, and what goes wrong: the nouns of the control calls."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from ostinato.fleet.scheduler.pod import Size
from ostinato.sandbox.base import Egress, Limits, SandboxError, Snapshot, SnapshotKind

ENVD_VERSION = "0.5.7"
"""The agent whose protocol ours speaks: the first to take files as plain bytes."""
TIMEOUT_S = 300.0
LONGEST_S = 86_400.0
STRANGERS_LIMITS = Limits(cpu_s=600, wall_s=3600.0, disk_mb=1024, memory_mb=2048, processes=256)
"""What a sandbox may use when the client does not say, as no public client can."""


class ControlError(SandboxError):
    """A control call that is refused: a status and, when it is worth coming back, the seconds."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after_s = status, message, retry_after_s


def bad(message: str) -> ControlError:
    return ControlError(400, message)


class State(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A sandbox that somebody wants.

    >>> Wish(id="a1", template="base").size.memory_mb
    2048
    """

    id: str
    template: str
    """A template, or a snapshot."""
    timeout_s: float = TIMEOUT_S
    metadata: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = STRANGERS_LIMITS
    egress: Egress | None = None

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s <= LONGEST_S:
            raise bad(f"a timeout of {self.timeout_s} s: give 1 to {LONGEST_S:g}")

    @property
    def size(self) -> Size:
        """What the scheduler sets aside: a core, and what the limits allow."""
        return Size(1000, self.limits.memory_mb, self.limits.disk_mb)

    def body(self) -> dict[str, Any]:
        """As JSON; `read_wish` is the inverse."""
        extra: dict[str, Any] = {"sandboxID": self.id, "limits": asdict(self.limits)}
        if self.egress is not None:
            extra["egress"] = asdict(self.egress)
        return {
            "templateID": self.template,
            "timeout": self.timeout_s,
            "metadata": dict(self.metadata),
            "envVars": dict(self.environment),
            "ostinato": extra,
        }


def read_wish(body: Mapping[str, Any], fresh_id: str) -> Wish:
    """From the body of a create call; what E2B has no word for lies under `ostinato`. Raises ControlError."""
    extra = body.get("ostinato") or {}
    try:
        egress = extra.get("egress")
        return Wish(
            id=str(extra.get("sandboxID") or fresh_id),
            template=str(body["templateID"]),
            timeout_s=float(body.get("timeout", TIMEOUT_S)),
            metadata=texts(body.get("metadata")),
            environment=texts(body.get("envVars")),
            limits=Limits(**extra["limits"]) if "limits" in extra else STRANGERS_LIMITS,
            egress=None if egress is None else _egress(egress),
        )
    except KeyError as error:
        raise bad(f"{error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise bad(f"not a sandbox: {error}") from error


def _egress(told: Mapping[str, Any]) -> Egress:
    read: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in told.items()
    }
    return Egress(**read)


def texts(value: object) -> dict[str, str]:
    """A mapping from text to text, None taken as empty. Raises TypeError."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError("metadata and envVars map names to text")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """What is told of a sandbox.

    >>> Info(wish=Wish(id="a1", template="base"), state=State.RUNNING, started_at=0.0, end_at=300.0).node
    ''
    """

    wish: Wish
    state: State
    started_at: float
    end_at: float
    """When its time is over; it is kept a little longer, for scoring. Seconds since the epoch, as above."""
    node: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Seconds each phase took, and `cpu_s` of the start."""
    root: str = ""
    """Where the repository lies in it."""

    def body(self, token: str = "") -> dict[str, Any]:
        """As E2B's `Sandbox` and `SandboxDetail` in one."""
        return {
            "templateID": self.wish.template,
            "sandboxID": self.wish.id,
            "clientID": self.node,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": token,
            "domain": None,
            "startedAt": stamp(self.started_at),
            "endAt": stamp(self.end_at),
            "cpuCount": 1,
            "memoryMB": self.wish.limits.memory_mb,
            "diskSizeMB": self.wish.limits.disk_mb,
            "state": str(self.state),
            "metadata": dict(self.wish.metadata),
            "ostinato": {
                "spent": dict(self.spent),
                "root": self.root,
                "limits": asdict(self.wish.limits),
                "timeout": self.wish.timeout_s,
                "startedAt": self.started_at,
                "endAt": self.end_at,
            },
        }


def read_info(body: Mapping[str, Any]) -> Info:
    """The inverse of `Info.body`, of our own servers. Raises KeyError."""
    extra = body["ostinato"]
    wish = Wish(
        id=body["sandboxID"],
        template=body["templateID"],
        timeout_s=extra["timeout"],
        metadata=body["metadata"],
        limits=Limits(**extra["limits"]),
    )
    return Info(
        wish=wish,
        state=State(body["state"]),
        started_at=extra["startedAt"],
        end_at=extra["endAt"],
        node=body["clientID"],
        spent=extra["spent"],
        root=extra["root"],
    )


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def now() -> float:
    """Seconds since the epoch: what is told to people; spans are measured by the monotonic clock."""
    return time.time()


class Control(Protocol):
    """What a node does itself and a front lets its nodes do. Everything raises ControlError."""

    async def create(self, wish: Wish) -> Info: ...

    async def info(self, pod: str) -> Info: ...

    async def every(self) -> list[Info]: ...

    async def kill(self, pod: str) -> None: ...

    async def pause(self, pod: str) -> None: ...

    async def resume(self, pod: str, timeout_s: float | None) -> Info: ...

    async def extend(self, pod: str, timeout_s: float) -> None: ...

    async def snapshot(self, pod: str, kind: SnapshotKind) -> Snapshot: ...

    async def forget(self, template: str) -> None:
        """Delete a snapshot or a template."""
        ...

    async def fork(self, pod: str, wishes: list[Wish]) -> list[Info | ControlError]:
        """One answer for each wish."""
        ...

    async def logs(self, pod: str) -> list[tuple[float, str]]:
        """What was run, and the end of what it wrote, with the time."""
        ...

    async def sweep(self, label: str, value: str) -> list[str]:
        """Ends every sandbox whose metadata says so; returns their names."""
        ...
