"""The protocols of a sandbox and its backend, and their data. It needs no Linux.

Spec ──Backend.create──► Sandbox ──exec, start, read, write, list, changes──► destroy
                            └─fork(n)──► n more, independent of each other
Exam ──Backend.examine──► outcomes of the hidden tests (see `ostinato.sandbox.exam.verifier`)
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

MAX_FILE_BYTES = 16 * 2**20
"""The size of the largest file that `read` and `write` accept."""


class SandboxError(Exception):
    """The sandbox itself failed, not the command in it; its message says what to do."""


class SandboxPathError(SandboxError):
    """A path that leads out of the repository, directly or through a symbolic link."""


class ChangesError(SandboxError):
    """Changes that are too large, or that no repository can take; the code in the sandbox is at fault."""


class MachineRefusesError(SandboxError):
    """This machine refuses what a backend is made of, as a kernel does that has no namespaces for us.

    For this reason alone `auto` goes on with a weaker backend. A missing package, a start that broke off or a
    machine that is short of memory is no reason: there the better backend works once that is mended.
    """


class EndedWithinError(SandboxError):
    """The sandbox was ended by the code that ran in it; its backend still works."""


class Unsupported(SandboxError):  # noqa: N818 - a capability is missing, nothing went wrong
    """A backend lacks a capability; the message names it, and a backend that has it.

    >>> str(Unsupported("process", "mount anything", "ns"))
    'the process backend cannot mount anything: use ns'
    """

    def __init__(self, backend: str, what: str, instead: str) -> None:
        super().__init__(f"the {backend} backend cannot {what}: use {instead}")


class Isolation(StrEnum):
    """The kinds of isolation between a command and the machine, weakest first."""

    PROCESS = "process"
    LANDLOCK = "landlock"
    NAMESPACES = "namespaces"
    USERSPACE_KERNEL = "userspace-kernel"


_BOUNDARIES = frozenset({Isolation.NAMESPACES, Isolation.USERSPACE_KERNEL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities of a backend on this machine, found out by running it.

    >>> Capabilities(isolation=Isolation.LANDLOCK).boundary
    False
    """

    isolation: Isolation
    fork: bool = False
    """True where a sandbox's files can be given to more sandboxes; processes never are."""
    egress: bool = False
    """True where a sandbox may reach hosts through a proxy. Without egress a boundary has no network."""
    limits: frozenset[str] = frozenset()
    """Any of "rlimit", "pids", "cgroup1", "cgroup2"."""
    lost: tuple[str, ...] = ()
    """One sentence for each thing that it cannot do on this machine."""

    @property
    def boundary(self) -> bool:
        """True when malicious code cannot get out; False when only accidents are prevented."""
        return self.isolation in _BOUNDARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resources that one sandbox may use.

    >>> Limits(wall_s=5.0).memory_mb
    512
    """

    memory_mb: int = 512
    """The address space of one process in MiB; with a cgroup, the memory of the whole sandbox, too."""
    cpu_s: int = 10
    """The CPU seconds of one process."""
    wall_s: float = 20.0
    """The seconds that one command may take; then all of its processes are killed."""
    processes: int = 64
    disk_mb: int = 64
    """The MiB that may be written in the sandbox; they are held in memory."""
    output_bytes: int = 20_000
    """The bytes that are kept of the end of a command's output."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A directory or file of the machine that a sandbox sees read-only.

    >>> Mount(source=Path("/srv/data"), target="/data").target
    '/data'
    """

    source: Path
    target: str
    """An absolute path in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The root file system that a sandbox has instead of the machine's programs.

    >>> Image(root=Path("/srv/images/9f/rootfs"), workdir="/app").environment
    {}
    """

    root: Path
    """The unpacked files. They are never written: what a sandbox writes above them ends with it."""
    workdir: str = "/repo"
    """An absolute path at which commands see the repository too."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command; those of the spec go before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The hosts that a sandbox may reach, always through the proxy in `HTTP_PROXY`.

    >>> Egress(allow=("example.org:443", "*.example.net:443")).allow[0]
    'example.org:443'
    """

    allow: tuple[str, ...]
    """`host:port`; `*.host:port` is every name below a host, and not the host itself."""
    networks: tuple[str, ...] = ()
    """Private networks (`10.1.0.0/16`) in which an allowed name may resolve; all others are refused."""
    sent_bytes: int | None = None
    """The bytes that may leave the sandbox by all connections together; None: any number."""
    received_bytes: int | None = None
    bytes_per_s: int | None = None
    """The bytes in a second, in both directions together; None: any number."""
    connections: int = 32
    """The connections that may be open at once."""
    strip: tuple[str, ...] = ("authorization", "cookie", "set-cookie", "x-api-key")
    """Headers that the proxy removes from requests and responses which are not encrypted."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables by which programs find what they may reach; those of the spec go before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The description of a sandbox to create.

    >>> Spec(repo=Path("/srv/repo")).limits.processes
    64
    """

    repo: Path
    """The directory that the sandbox's repository starts as; it is itself never written."""
    limits: Limits = DEFAULT_LIMITS
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that every command gets in addition."""
    image: Image | None = None
    """None: the machine's own programs and Python."""
    egress: Egress | None = None
    """None: no network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The result of a command. `exit_code` is negative for a signal, as in `subprocess`.

    >>> ExecResult(exit_code=0, output="ok\\n", timed_out=False, duration_s=0.01).output
    'ok\\n'
    """

    exit_code: int
    output: str
    """Standard output and error as they came, invalid UTF-8 replaced; only the end if it is too long."""
    timed_out: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Hidden tests of a repository with changes, which runs in a fresh sandbox without the tests."""

    repo: Path
    """The pristine repository."""
    tests: Path
    """The directory of the hidden `test_*.py`."""
    changes: Mapping[str, bytes | None] = field(default_factory=dict)
    """The new content of relative paths, None to delete."""
    variations: int = 0
    """The number of further runs after a pass: in another sandbox and order, with another random seed."""
    limits: Limits = field(default_factory=Limits)
    image: Image | None = None
    """The root of sandboxes in which a command runs the tests. The judge's workers have the machine's own."""


OnOutput = Callable[[str], None]


class Process(Protocol):
    """A running command. In the end `wait` must be called, or the sandbox destroyed."""

    def output(self) -> AsyncIterator[bytes]:
        """Yield standard output and error as they come, until their end, to one reader.

        The buffer between command and reader is bounded, so a slow reader slows the command down.
        """

    async def send(self, data: bytes) -> None:
        """Write to its standard input, waiting while that is full; empty `data` closes it.
        Raises SandboxError when it was started without one, BrokenPipeError when the command closed it."""

    async def signal(self, number: int) -> None:
        """Send a signal to the command's process group; does nothing when the command has ended."""

    async def wait(self) -> ExecResult:
        """Wait for the end of the command; reads the output that no reader took, and keeps its last bytes."""


class Sandbox(Protocol):
    """A repository in which commands can do anything.

    Paths are relative to the repository, or absolute paths within it. After `destroy`, or when the sandbox
    has died, every call raises `SandboxError`.
    """

    @property
    def id(self) -> str:
        """Its name among all sandboxes, forks included."""

    @property
    def root(self) -> str:
        """The path of the repository as commands in the sandbox see it."""

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        """Run `command` with `sh -c` in the repository; processes that it leaves behind are killed.
        `on_output` is called with the output as it comes."""

    async def start(self, command: str, *, timeout_s: float | None = None, stdin: bool = False) -> Process:
        """Start `command` as `exec` does, and do not wait; with `stdin` it has a standard input for `send`.
        The default of `timeout_s` is the sandbox's `wall_s`."""

    async def read(self, path: str) -> bytes:
        """Return a file's bytes; raises FileNotFoundError, IsADirectoryError, SandboxPathError."""

    async def write(self, path: str, data: bytes) -> None:
        """Write the whole file, with its parent directories; raises IsADirectoryError, SandboxPathError."""

    async def files(self) -> list[str]:
        """Return the sorted relative paths of all files, `.git` left out."""

    async def tree_hash(self) -> str:
        """Return a digest of all files' paths, contents and executable bits, `.git` left out."""

    async def changes(self) -> dict[str, bytes | None]:
        """Return the files that differ from the start, None for a deleted one, without `.git`.
        Raises ChangesError."""

    async def fork(self, n: int = 1) -> "list[Sandbox]":
        """Create `n` more sandboxes whose files are as here now; no process is copied, an error leaves none.
        Each has an identity and randomness of its own. Raises SandboxError, Unsupported."""

    async def destroy(self) -> None:
        """End all processes and remove all that was written. A second call does nothing."""

    async def list(self, path: str = ".") -> list[str]:
        """Return the sorted names in a directory, directories with a slash; raises NotADirectoryError too."""


class Backend(Protocol):
    """Creates sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities:
        """Its abilities on this machine."""

    async def create(self, spec: Spec) -> Sandbox:
        """Create a fresh sandbox whose repository starts as `spec.repo`.
        Raises SandboxError, and Unsupported for a part of the spec that this backend lacks."""

    async def examine(self, exam: Exam) -> "list[dict[str, str]]":
        """Return the outcomes of every run, each by a hidden test's node id; a run that fails is the last.
        Raises SandboxError when the exam could not be held."""

    async def aclose(self) -> None:
        """Destroy every sandbox and the processes that serve them."""


@runtime_checkable
class LetOut(Protocol):
    """A sandbox that counts the connections which it wanted and did not get."""

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of connections that were refused or cut, by host and port; complete once destroyed."""


@runtime_checkable
class JudgedElsewhere(Protocol):
    """A backend whose sandboxes can do too little for an exam: another one holds it, from the changes."""

    @property
    def judge(self) -> Backend:
        """The backend that holds the exams."""
