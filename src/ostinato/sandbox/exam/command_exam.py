"""Exams in any language: a command runs in a fresh sandbox and leaves a report that is read from outside.

    pristine repo + changes, laid out anew ──► fresh sandbox, hidden tests read-only ──command──► report
                                                       └─► all processes ended ──► report read ──► outcomes

The command's test program and the code it tests are one process as a rule, so that code can write the report
itself. What is done about it: the report's place is random, nothing runs any more when it is read, every
expected id must be there and the exit status must agree, and a second run elsewhere must say the same. What
cannot be done is said: such verdicts are marked `forgeable`.
"""

import asyncio
import secrets
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.sandbox.base import (
    Backend,
    ChangesError,
    EndedWithinError,
    Exam,
    Mount,
    Sandbox,
    SandboxError,
    Spec,
)
from ostinato.sandbox.exam.host import repeated
from ostinato.sandbox.exam.reports import READERS, ReportError
from ostinato.sandbox.files import tree
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.protocol.connection import ResponseTimeoutError
from ostinato.types import Task

TESTS = "/mnt/tests"
_BESIDE = ".exam-tests"
"""In the repository, where nothing can be mounted."""
EXIT = "exit status"
"""The id of what should not be there: all tests passed, and the command failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a task's hidden tests are run when they are not pytest's.

    >>> Check(command="prove $TESTS/*.t", report="tap", needs=("prove",)).report
    'tap'
    """

    command: str
    """For `sh -c` in the repository, with TESTS (the hidden tests), REPO, LOGS (a folder to write in), REPORT
    (the file that is read) and SEED (another number in another run) in its environment. Output is the report
    for TAP; Harbor's scripts write LOGS/reward.txt."""
    report: str
    """`junit`, `tap` or `reward`."""
    needs: tuple[str, ...] = ()
    """Programs that must be there."""

    @classmethod
    def of(cls, task: Task) -> "Check | None":
        """The task's `[metadata.ostinato.check]`; None for one judged by pytest. Raises SandboxError."""
        table = task.metadata.get("check")
        if table is None:
            return None
        command, report, needs = table.get("command"), table.get("report"), table.get("needs", ())
        if (
            not isinstance(command, str)
            or report not in READERS
            or not all(isinstance(n, str) for n in needs)
        ):
            raise SandboxError(
                f"task {task.id}: `check` needs `command`, a text, and `report`, one of {', '.join(READERS)}"
            )
        return cls(command=command, report=report, needs=tuple(needs))


async def examine(backend: Backend, exam: Exam, check: Check) -> list[dict[str, str]]:
    """As `Backend.examine`; raises ChangesError for the changes."""
    return await repeated(exam, lambda seed: _examine(backend, exam, check, seed))


async def _examine(backend: Backend, exam: Exam, check: Check, seed: int) -> dict[str, str]:
    with Scratch("check") as scratch:
        repo = scratch.path / "repo"
        mounted = backend.capabilities.boundary
        await asyncio.to_thread(_lay_out, exam, repo, beside=not mounted)
        mounts = (Mount(source=exam.tests, target=TESTS),) if mounted else ()
        sandbox = await backend.create(Spec(repo=repo, limits=exam.limits, mounts=mounts))
        try:
            await _check_tools(sandbox, check)
            tests = TESTS if mounted else f"{sandbox.root}/{_BESIDE}"
            return await _run(sandbox, check, tests, seed)
        except (EndedWithinError, ResponseTimeoutError):
            return {}  # no report: what ran there ended its sandbox, or keeps it from answering
        finally:
            await sandbox.destroy()


def _lay_out(exam: Exam, repo: Path, *, beside: bool) -> None:
    """The tree that is examined, with the tests in it if they must lie `beside`."""
    if not exam.repo.is_dir():
        raise SandboxError(f"no repository at {exam.repo}: give a directory")
    shutil.copytree(exam.repo, repo, symlinks=True)
    tree.apply(str(repo), exam.changes)
    if beside:
        if (repo / _BESIDE).is_symlink():
            raise ChangesError(f"{_BESIDE} is where the tests will lie")
        shutil.rmtree(repo / _BESIDE, ignore_errors=True)
        shutil.copytree(exam.tests, repo / _BESIDE)


async def _check_tools(sandbox: Sandbox, check: Check) -> None:
    missing = [
        name for name in check.needs if (await sandbox.exec(f"command -v {shlex.quote(name)}")).exit_code != 0
    ]
    if missing:
        raise SandboxError(f"this task needs {', '.join(missing)}: install it where sandboxes see it (/usr)")


async def _run(sandbox: Sandbox, check: Check, tests: str, seed: int) -> dict[str, str]:
    place = f".exam-{secrets.token_hex(8)}"
    report = f"{place}/{'reward.txt' if check.report == 'reward' else 'report'}"
    names = {
        "REPO": sandbox.root,
        "TESTS": tests,
        "LOGS": f"{sandbox.root}/{place}",
        "REPORT": f"{sandbox.root}/{report}",
        "SEED": str(seed),
    }
    result = await sandbox.exec(_script(check, names))
    try:
        found = READERS[check.report](await _report(sandbox, report))
    except ReportError:
        return {}
    if result.exit_code != 0 and set(found.values()) == {"passed"}:
        return {**found, EXIT: "failed"}
    return found


def _script(check: Check, names: Mapping[str, str]) -> str:
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in names.items())
    output = ' > "$REPORT"' if check.report == "tap" else ""
    return f'export {given}\nmkdir -p "$LOGS" && {{\n{check.command}\n}}{output}'


async def _report(sandbox: Sandbox, report: str) -> bytes:
    """Empty when there is none: whoever ran could have taken it away, or put something else in its place."""
    try:
        return await sandbox.read(report)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except SandboxError:
        await sandbox.exec("true")  # raises when it was the sandbox that failed
        return b""
