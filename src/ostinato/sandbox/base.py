"""What every sandbox can do, and what it answers. Standard library only, no Linux needed.

Spec ──Backend.create──► Sandbox ──exec, start, read, write, list, changes──► destroy
                            │ pause, resume, usage
                            ├─fork(n)──► n more, each going its own way
                            └─snapshot──► Snapshot ──Backend.restore──► Sandbox
Exam ──Backend.examine──► outcomes of the hidden tests (see `ostinato.sandbox.exam.verifier`)
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

MAX_FILE_BYTES = 16 * 2**20
"""The largest file that `read` and `write` carry."""
SNAPSHOT_FORMAT = 1


class SandboxError(Exception):
    """The sandbox itself failed (not the command in it): says what, which sandbox and what to do."""


class SandboxPathError(SandboxError):
    """A path that leads out of the repository, directly or through a symbolic link."""


class ChangesError(SandboxError):
    """Changes that no repository can take, or that are too large to be carried: the sandbox's own fault."""


class EndedWithinError(SandboxError):
    """What ran in a sandbox ended it; all that holds the sandbox lives on."""


class Unsupported(SandboxError):  # noqa: N818 - a capability is missing, nothing went wrong
    """A backend lacks a capability: says which, and which backend has it.

    >>> str(Unsupported("process", "pause", "ns"))
    'the process backend cannot pause: use ns'
    """

    def __init__(self, backend: str, what: str, instead: str) -> None:
        super().__init__(f"the {backend} backend cannot {what}: use {instead}")


class Isolation(StrEnum):
    """What stands between a command and the machine, weakest first."""

    PROCESS = "process"
    LANDLOCK = "landlock"
    NAMESPACES = "namespaces"
    USERSPACE_KERNEL = "userspace-kernel"
    VM = "vm"


class SnapshotKind(StrEnum):
    FILESYSTEM = "filesystem"
    """Files only: processes start anew."""
    FULL = "full"
    """Memory and files: execution goes on where it was."""


_BOUNDARIES = frozenset({Isolation.NAMESPACES, Isolation.USERSPACE_KERNEL, Isolation.VM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do on this machine, found out by running it.

    >>> Capabilities(isolation=Isolation.LANDLOCK).boundary
    False
    """

    isolation: Isolation
    snapshots: frozenset[SnapshotKind] = frozenset()
    fork: SnapshotKind | None = None
    """What a fork carries over; None when it cannot fork."""
    pause: bool = False
    egress: frozenset[str] = frozenset()
    """Of "proxy" and "transparent"; no network at all is what every boundary gives."""
    limits: frozenset[str] = frozenset()
    """Of "rlimit", "pids", "cgroup1", "cgroup2"."""
    lost: tuple[str, ...] = ()
    """What this machine keeps it from giving, one sentence each."""

    @property
    def boundary(self) -> bool:
        """True when code that wants to do harm is held; False when only accidents are."""
        return self.isolation in _BOUNDARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one sandbox may use.

    >>> Limits(wall_s=5.0).memory_mb
    512
    """

    memory_mb: int = 512
    """Address space of one process, MiB; with a cgroup or a machine of its own, of the whole sandbox."""
    cpu_s: int = 10
    """CPU seconds of one process."""
    wall_s: float = 20.0
    """Seconds one command may take; then every process of it is killed."""
    processes: int = 64
    disk_mb: int = 64
    """Everything written in the sandbox, MiB, held in memory."""
    output_bytes: int = 20_000
    """How much of a command's output is kept: its end."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A directory or file of the machine that a sandbox sees, read-only.

    >>> Mount(source=Path("/srv/data"), target="/data").target
    '/data'
    """

    source: Path
    target: str
    """An absolute path in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """Which hosts a sandbox may reach, through a proxy and never otherwise.

    >>> Egress(allow=("example.org:443", "*.example.net:443")).allow[0]
    'example.org:443'
    """

    allow: tuple[str, ...]
    """`host:port`; `*.host:port` is every name below a host and not the host itself."""
    networks: tuple[str, ...] = ()
    """Networks inside (`10.1.0.0/16`) that an allowed name may lead to; all others are refused."""
    sent_bytes: int | None = None
    """How much may leave the sandbox, all connections together; None: any amount."""
    received_bytes: int | None = None
    bytes_per_s: int | None = None
    """Both ways together; None: as fast as it goes."""
    connections: int = 32
    """How many may be open at once."""
    strip: tuple[str, ...] = ("authorization", "cookie", "set-cookie", "x-api-key")
    """Headers taken out of what is not encrypted, or is inspected: requests and responses."""
    inspect: tuple[str, ...] = ()
    """Hosts, as in `allow`, to which only HTTP is spoken: their TLS ends at the proxy, whose certificates
    only this sandbox trusts. All others' TLS passes through, when it asks for the host by its name."""
    transparent: bool = False
    """Every connection is turned to the proxy, programs need not know of it: names resolve, addresses
    that no name led to are refused. Else there is a proxy in `HTTP_PROXY` and no other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a sandbox starts from.

    >>> Spec(repo=Path("/srv/repo"), labels={"run": "7"}).limits.processes
    64
    """

    repo: Path
    """Becomes the sandbox's repository; is itself never written."""
    limits: Limits = DEFAULT_LIMITS
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to what every command sees."""
    egress: Egress | None = None
    """None: no network."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """For whoever looks for sandboxes later; the sandbox itself does not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a sandbox has used so far.

    >>> Usage(cpu_s=0.1, memory_bytes=2**20, disk_bytes=0, processes=1, wall_s=2.0).processes
    1
    """

    cpu_s: float
    memory_bytes: int
    """Resident now, shared pages counted by share where the kernel says so."""
    disk_bytes: int
    """Written above the repository."""
    processes: int
    """Running now, the sandbox's own agent included."""
    wall_s: float
    """Since it was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A sandbox on disk. Only the backend kind that made it restores it, to the same template.

    >>> Snapshot(
    ...     id="5f", kind=SnapshotKind.FILESYSTEM, backend="ns", template="/srv/repo:1:2:3",
    ...     path=Path("/var/snapshots/5f"), bytes=4096, created=1.8e9,
    ... ).format
    1
    """

    id: str
    kind: SnapshotKind
    backend: str
    """The name of the backend that made it."""
    format: int = SNAPSHOT_FORMAT
    template: str
    """What the sandbox had started from: a restore above anything else is refused."""
    path: Path
    """Its directory; `snapshot.json` in there is written last."""
    bytes: int
    created: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a command did. `exit_code` is negative for a signal, as in `subprocess`.

    >>> ExecResult(exit_code=0, output="ok\\n", timed_out=False, duration_s=0.01).output
    'ok\\n'
    """

    exit_code: int
    output: str
    """Standard output and error as they came, invalid UTF-8 replaced; only the end when too long."""
    timed_out: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Hidden tests to run against a repository with changes, in a fresh sandbox that never sees the tests."""

    repo: Path
    """The pristine repository."""
    tests: Path
    """Directory of the hidden `test_*.py`."""
    changes: Mapping[str, bytes | None] = field(default_factory=dict)
    """Relative path to new content, None to delete."""
    variations: int = 0
    """How often what passed runs again: in another sandbox, in another order, from another random seed."""
    limits: Limits = field(default_factory=Limits)


OnOutput = Callable[[str], None]


class Process(Protocol):
    """A command that runs. `wait` must be called in the end, or the sandbox destroyed."""

    def output(self) -> AsyncIterator[bytes]:
        """Standard output and error as they come, until their end; for one reader.

        The buffer between command and reader is bounded: a slow reader slows the command down.
        """
        ...

    async def send(self, data: bytes) -> None:
        """Write to its standard input, waiting while it is full; empty `data` closes it.

        Raises SandboxError when it was started without one, BrokenPipeError when nobody reads it any more.
        """
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to the command's process group; nothing to do when it has ended."""
        ...

    async def wait(self) -> ExecResult:
        """The end of the command; drains the output that no reader took and keeps its last bytes."""
        ...


class Sandbox(Protocol):
    """A repository that commands can do anything to.

    Paths are relative to the repository (absolute ones must lie within it). After `destroy`, or when it
    died, every call raises `SandboxError`.
    """

    @property
    def id(self) -> str:
        """Names it among all sandboxes, forks included."""
        ...

    @property
    def root(self) -> str:
        """Where the repository lies, as commands in the sandbox see it."""
        ...

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        """Run `command` with `sh -c` in the repository; processes it leaves behind are killed.

        `on_output` is given the output as it comes.
        """
        ...

    async def start(self, command: str, *, timeout_s: float | None = None, stdin: bool = False) -> Process:
        """Start `command` as `exec` does and go on; `stdin` gives it a standard input to `send` to.

        `timeout_s` None is the sandbox's `wall_s`.
        """
        ...

    async def read(self, path: str) -> bytes:
        """The file's bytes; raises FileNotFoundError, IsADirectoryError, SandboxPathError."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write the whole file, with its parent directories; raises IsADirectoryError, SandboxPathError."""
        ...

    async def files(self) -> list[str]:
        """Sorted relative paths of all files, `.git` left out."""
        ...

    async def tree_hash(self) -> str:
        """A digest of all files' paths, contents and executable bits, `.git` left out."""
        ...

    async def changes(self) -> dict[str, bytes | None]:
        """Files that differ from the repository it started from, without `.git`: bytes, None when deleted.
        Raises ChangesError."""
        ...

    async def pause(self) -> None:
        """Stop every process in it until `resume`; what needs them meanwhile waits. Raises Unsupported."""
        ...

    async def resume(self) -> None:
        """Let them go on; nothing to do when it is not paused. Raises Unsupported."""
        ...

    async def snapshot(self, kind: SnapshotKind = SnapshotKind.FILESYSTEM) -> Snapshot:
        """Write it to disk; it stands still for that moment and goes on afterwards. Raises Unsupported."""
        ...

    async def fork(self, n: int = 1) -> "list[Sandbox]":
        """`n` more sandboxes that start as this one is now: all of them, or SandboxError and none.

        Each has an identity and randomness of its own. Raises Unsupported.
        """
        ...

    async def usage(self) -> Usage: ...

    async def destroy(self) -> None:
        """End all processes and drop what was written. Calling it again does nothing."""
        ...

    async def list(self, path: str = ".") -> list[str]:
        """Sorted names in a directory, directories with a slash; raises as `read`, NotADirectoryError."""
        ...


class Backend(Protocol):
    """Creates sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do here."""
        ...

    async def create(self, spec: Spec) -> Sandbox:
        """A fresh sandbox whose repository starts as `spec.repo`; raises SandboxError, and Unsupported for
        a part of the spec that it cannot give."""
        ...

    async def restore(self, snapshot: Snapshot, spec: Spec) -> Sandbox:
        """A sandbox that starts as `snapshot` was; raises SandboxError for a snapshot of another backend,
        format or template. As often as wanted, also at the same time."""
        ...

    async def remove(self, snapshot: Snapshot) -> None:
        """Delete a snapshot from disk; nothing to do when it is gone. Sandboxes restored from it live on."""
        ...

    async def examine(self, exam: Exam) -> "list[dict[str, str]]":
        """The outcome of every hidden test by node id, of each run; one that is not passed is the last.

        Raises SandboxError when it could not be held."""
        ...

    async def aclose(self) -> None:
        """Destroy every sandbox and what serves them; snapshots in a directory given by the caller stay."""
        ...
