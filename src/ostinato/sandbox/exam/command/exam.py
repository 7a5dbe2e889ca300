"""Exams in any language: a command runs in a fresh sandbox and writes a report that is read from outside.

    fresh copy of the pristine repo + changes ──► fresh sandbox, hidden tests read-only ──command──► report
                                                       └─► all processes ended ──► report read ──► outcomes

The test program and the code under test usually share a process, so that code can write the report itself.
These measures make that harder: the report's path is random, no process runs any more when the report is
read, every expected id must be in it and agree with the exit status, and a second run elsewhere must report
the same. They cannot prevent it, so such verdicts have the grade `forgeable`.
"""

import asyncio
import secrets
import shlex
import shutil
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
from ostinato.sandbox.exam.command.reports import READERS, ReportError
from ostinato.sandbox.exam.variations import run_variations
from ostinato.sandbox.files import tree
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.protocol.connection import ResponseTimeoutError
from ostinato.types import Task

TESTS = "/mnt/tests"
_BESIDE = ".exam-tests"
"""The directory of the tests in the repository, where the backend cannot mount them."""
EXIT = "exit status"
"""The id of an extra outcome, which fails the exam: all tests passed, but the command failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The command that runs a task's hidden tests when pytest does not.

    >>> Check(command="prove $TESTS/*.t", report="tap", needs=("prove",)).report
    'tap'
    """

    command: str
    """The line for `sh -c` in the repository. Its environment has TESTS (the hidden tests), REPO, LOGS (a
    directory to write to), REPORT (the file that will be read) and SEED (a number that differs between runs).
    For TAP the report is its output; Harbor's scripts write LOGS/reward.txt."""
    report: str
    """`junit`, `tap` or `reward`."""
    needs: tuple[str, ...] = ()
    """Programs that must be installed."""

    @classmethod
    def of(cls, task: Task) -> "Check | None":
        """Read the task's `[metadata.ostinato.check]`; None if pytest runs its tests. Raises SandboxError."""
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
                f"task {task.id}: `check` needs a string `command` and a `report` out of {', '.join(READERS)}"
            )
        return cls(command=command, report=report, needs=tuple(needs))


async def examine(backend: Backend, exam: Exam, check: Check) -> list[dict[str, str]]:
    """Run an exam as `Backend.examine` does. Raises ChangesError for the changes."""
    return await run_variations(exam, lambda seed: _examine(backend, exam, check, seed))


async def _examine(backend: Backend, exam: Exam, check: Check, seed: int) -> dict[str, str]:
    with Scratch("check") as scratch:
        repo = scratch.path / "repo"
        mounted = backend.capabilities.boundary
        await asyncio.to_thread(_copy_tree, exam, repo, beside=not mounted)
        mounts = (Mount(source=exam.tests, target=TESTS),) if mounted else ()
        sandbox = await backend.create(Spec(repo=repo, limits=exam.limits, mounts=mounts, image=exam.image))
        try:
            await _check_tools(sandbox, check)
            tests = TESTS if mounted else f"{sandbox.root}/{_BESIDE}"
            return await _run(sandbox, check, tests, seed)
        except (EndedWithinError, ResponseTimeoutError):
            return {}  # no report: a process there ended its sandbox, or keeps it from responding
        finally:
            await sandbox.destroy()


def _copy_tree(exam: Exam, repo: Path, *, beside: bool) -> None:
    """Write the tree that is examined to `repo`, with the tests in it if `beside` is set."""
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
    directory = f".exam-{secrets.token_hex(8)}"
    report = f"{directory}/{'reward.txt' if check.report == 'reward' else 'report'}"
    names = {
        "REPO": sandbox.root,
        "TESTS": tests,
        "LOGS": f"{sandbox.root}/{directory}",
        "REPORT": f"{sandbox.root}/{report}",
        "SEED": str(seed),
    }
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in names.items())
    output = ' > "$REPORT"' if check.report == "tap" else ""
    script = f'export {variables}\nmkdir -p "$LOGS" && {{\n{check.command}\n}}{output}'
    result = await sandbox.exec(script)
    try:
        outcomes = READERS[check.report](await _read_report(sandbox, report))
    except ReportError:
        return {}
    if result.exit_code != 0 and set(outcomes.values()) == {"passed"}:
        return {**outcomes, EXIT: "failed"}
    return outcomes


async def _read_report(sandbox: Sandbox, report: str) -> bytes:
    """Return the report, empty if there is none: the code under test may have removed or replaced it."""
    try:
        return await sandbox.read(report)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except SandboxError:
        await sandbox.exec("true")  # raises if the sandbox itself failed
        return b""
