"""What every sandbox can do, and what it answers. Standard library only, no Linux needed.

Backend ──open(repo)──► Sandbox ──exec, read, write, list, changes──► close
   └────examine(exam)──► outcomes of the hidden tests (see `ostinato.sandbox.verify`)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

MAX_FILE_BYTES = 16 * 2**20
"""The largest file that `read` and `write` carry."""


class SandboxError(Exception):
    """The sandbox itself failed (not the command in it): says what, which sandbox and what to do."""


class SandboxPathError(SandboxError):
    """A path that leads out of the repository, directly or through a symbolic link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one sandbox may use.

    >>> Limits(wall_s=5.0).memory_mb
    512
    """

    memory_mb: int = 512
    """Address space of one process, MiB."""
    cpu_s: int = 10
    """CPU seconds of one process."""
    wall_s: float = 20.0
    """Seconds one command may take; then every process of the sandbox is killed."""
    processes: int = 64
    disk_mb: int = 64
    """Everything written in the sandbox, MiB, held in memory."""
    output_bytes: int = 20_000
    """How much of a command's output is kept: its end."""


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
    limits: Limits = field(default_factory=Limits)


DEFAULT_LIMITS = Limits()
OnOutput = Callable[[str], None]


class Sandbox(Protocol):
    """A repository that commands can do anything to. One caller at a time; calls queue.

    Paths are relative to the repository (absolute ones must lie within it). After `close`, or when it
    died, every call raises `SandboxError`.
    """

    @property
    def root(self) -> str:
        """Where the repository lies, as commands in the sandbox see it."""
        ...

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        """Run `command` with `sh -c` in the repository; processes it leaves behind are killed.

        `on_output` is given the output as it comes, where the backend can, else in one piece at the end.
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
        """Files that differ from when the sandbox was opened, without `.git`: bytes, None when deleted."""
        ...

    async def close(self) -> None:
        """End all processes and drop what was written. Calling it again does nothing."""
        ...

    async def list(self, path: str = ".") -> list[str]:
        """Sorted names in a directory, directories with a trailing slash; raises FileNotFoundError,
        NotADirectoryError, SandboxPathError."""
        ...


class Backend(Protocol):
    """Opens sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def boundary(self) -> bool:
        """True when code that wants to do harm is held; False when only accidents are."""
        ...

    async def open(self, repo: Path, limits: Limits = DEFAULT_LIMITS) -> Sandbox:
        """A fresh sandbox whose repository starts as `repo`, which is never written; raises SandboxError."""
        ...

    async def examine(self, exam: Exam) -> dict[str, str]:
        """Outcome of every hidden test that ran, by node id; raises SandboxError when it could not run."""
        ...

    async def aclose(self) -> None:
        """Close every sandbox and whatever serves them."""
        ...
