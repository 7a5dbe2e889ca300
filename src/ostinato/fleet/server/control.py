"""The nouns of the control calls: requests, information, refusals and the `Control` protocol."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from ostinato.fleet.scheduler.types import Size
from ostinato.sandbox.base import Egress, Limits, SandboxError, Snapshot, SnapshotKind

ENVD_VERSION = "0.5.7"
"""The version of E2B's agent whose protocol ours speaks: the first that takes files as plain bytes."""
TIMEOUT_S = 300.0
LONGEST_S = 86_400.0
DEFAULT_LIMITS = Limits(cpu_s=600, wall_s=3600.0, disk_mb=1024, memory_mb=2048, processes=256)
"""The limits of a sandbox whose client states none, as no public client can."""


class ControlError(SandboxError):
    """A refused control call: the HTTP status and, if a retry may help, the seconds to wait before it."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after_s = status, message, retry_after_s


def bad_request(message: str) -> ControlError:
    return ControlError(400, message)


class SandboxState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """A sandbox that a client requests.

    >>> SandboxRequest(id="a1", template="base").size.memory_mb
    2048
    """

    id: str
    template: str
    """A template, or a snapshot."""
    timeout_s: float = TIMEOUT_S
    metadata: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    egress: Egress | None = None

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s <= LONGEST_S:
            raise bad_request(f"a timeout of {self.timeout_s} s: give 1 to {LONGEST_S:g}")

    @property
    def size(self) -> Size:
        """The resources that the scheduler reserves: one core, and memory and disk up to the limits."""
        return Size(1000, self.limits.memory_mb, self.limits.disk_mb)

    def body(self) -> dict[str, Any]:
        """Return the body of the create call; `read_request` is the inverse."""
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


def read_request(body: Mapping[str, Any], fresh_id: str) -> SandboxRequest:
    """Read the body of a create call; our own fields lie under `ostinato`. Raises ControlError."""
    extra = body.get("ostinato") or {}
    try:
        egress = extra.get("egress")
        return SandboxRequest(
            id=str(extra.get("sandboxID") or fresh_id),
            template=str(body["templateID"]),
            timeout_s=float(body.get("timeout", TIMEOUT_S)),
            metadata=texts(body.get("metadata")),
            environment=texts(body.get("envVars")),
            limits=Limits(**extra["limits"]) if "limits" in extra else DEFAULT_LIMITS,
            egress=None if egress is None else _egress(egress),
        )
    except KeyError as error:
        raise bad_request(f"{error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise bad_request(f"not a sandbox: {error}") from error


def _egress(body: Mapping[str, Any]) -> Egress:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in body.items()
    }
    return Egress(**fields)


def texts(value: object) -> dict[str, str]:
    """Return a mapping from text to text; None counts as empty. Raises TypeError."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError("metadata and envVars map names to text")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """The information about a sandbox that clients get.

    >>> SandboxInfo(request=SandboxRequest(id="a1", template="base"), state=SandboxState.RUNNING,
    ...             started_at=0.0, end_at=300.0).node
    ''
    """

    request: SandboxRequest
    state: SandboxState
    started_at: float
    end_at: float
    """The end of its time; it is kept a little longer, for scoring. Seconds since the epoch, as above."""
    node: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase, and `cpu_s` of the start."""
    root: str = ""
    """The directory of the repository in the sandbox."""

    def body(self, token: str = "") -> dict[str, Any]:
        """Return E2B's `Sandbox` and `SandboxDetail` in one."""
        return {
            "templateID": self.request.template,
            "sandboxID": self.request.id,
            "clientID": self.node,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": token,
            "domain": None,
            "startedAt": stamp(self.started_at),
            "endAt": stamp(self.end_at),
            "cpuCount": 1,
            "memoryMB": self.request.limits.memory_mb,
            "diskSizeMB": self.request.limits.disk_mb,
            "state": str(self.state),
            "metadata": dict(self.request.metadata),
            "ostinato": {
                "spent": dict(self.spent),
                "root": self.root,
                "limits": asdict(self.request.limits),
                "timeout": self.request.timeout_s,
                "startedAt": self.started_at,
                "endAt": self.end_at,
            },
        }


def read_info(body: Mapping[str, Any]) -> SandboxInfo:
    """Read the body that `SandboxInfo.body` of our own servers makes. Raises KeyError."""
    extra = body["ostinato"]
    request = SandboxRequest(
        id=body["sandboxID"],
        template=body["templateID"],
        timeout_s=extra["timeout"],
        metadata=body["metadata"],
        limits=Limits(**extra["limits"]),
    )
    return SandboxInfo(
        request=request,
        state=SandboxState(body["state"]),
        started_at=extra["startedAt"],
        end_at=extra["endAt"],
        node=body["clientID"],
        spent=extra["spent"],
        root=extra["root"],
    )


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def now() -> float:
    """Return the seconds since the epoch, for people; durations are measured by the monotonic clock."""
    return time.time()


class Control(Protocol):
    """The control calls: a node carries them out, a front has its nodes do so. All raise ControlError."""

    async def create(self, request: SandboxRequest) -> SandboxInfo: ...

    async def info(self, sandbox: str) -> SandboxInfo: ...

    async def every(self) -> list[SandboxInfo]: ...

    async def kill(self, sandbox: str) -> None: ...

    async def pause(self, sandbox: str) -> None: ...

    async def resume(self, sandbox: str, timeout_s: float | None) -> SandboxInfo: ...

    async def extend(self, sandbox: str, timeout_s: float) -> None: ...

    async def snapshot(self, sandbox: str, kind: SnapshotKind) -> Snapshot: ...

    async def forget(self, template: str) -> None:
        """Delete a snapshot or a template."""
        ...

    async def fork(self, sandbox: str, requests: list[SandboxRequest]) -> list[SandboxInfo | ControlError]:
        """Return one result for each request."""
        ...

    async def logs(self, sandbox: str) -> list[tuple[float, str]]:
        """Return the commands that ran and the ends of their output, each with its time."""
        ...

    async def sweep(self, label: str, value: str) -> list[str]:
        """End every sandbox whose metadata has this label; return their names."""
        ...
