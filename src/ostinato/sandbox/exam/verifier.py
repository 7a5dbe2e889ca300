"""Is the task solved? Answered so that the candidate's code cannot forge it.

    Task ─► fresh sandbox of the pristine repo + the candidate's changes, protected paths left out ─► worker
        └─► hidden tests, expected test ids ─► judge ─asks, plain data─► worker
                                                 └─► outcome per test id ─► Verification

Passed means: exactly the expected ids ran and every one passed, and again when the tests ran in another order
in another sandbox. What the candidate prints, returns as an exit status, writes to disk, patches in pytest or
registers at exit has no way into that answer. Tasks in other languages bring a command (see `check`).
"""

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ostinato.sandbox.base import (
    DEFAULT_LIMITS,
    Backend,
    ChangesError,
    EndedWithinError,
    Exam,
    Limits,
    SandboxError,
    SandboxPathError,
)
from ostinato.sandbox.exam.command_exam import Check, examine
from ostinato.sandbox.files import tree
from ostinato.types import Task

MISSING, UNSTABLE = "missing", "unstable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the hidden tests say.

    >>> Verification(passed=True, outcomes={"test_hidden.py::test_alpha": "passed"}).void
    """

    passed: bool
    outcomes: Mapping[str, str]
    """By test id: passed, failed, error, skipped, missing or unstable. Unexpected ids are listed and fail."""
    tampered: tuple[str, ...] = ()
    """Protected paths that the changes touch; the pristine ones were used."""
    void: str | None = None
    """Why there is no answer: something of ours failed, the candidate is not to blame. Never passed."""
    forgeable: bool = False
    """True when the tested code ran in the process that reported: a pass is worth what that code is worth."""


class Verifier:
    """Runs hidden tests in sandboxes of `backend`.

    `variations`: how often what passed is examined again, each time in another order. 0 only where the passes
    are examined once more by somebody else.
    """

    def __init__(self, backend: Backend, limits: Limits = DEFAULT_LIMITS, *, variations: int = 1) -> None:
        self._backend = backend
        self._limits = limits
        self._variations = variations

    async def verify(self, task: Task, changes: Mapping[str, bytes | None]) -> Verification:
        """Judge the pristine repository with `changes` (path to content, None to delete). Never raises for
        what the candidate did; a failure of the machinery gives a void verification."""
        tampered = tuple(sorted(path for path in changes if _is_protected(task, path)))
        exam = Exam(
            repo=task.repo,
            tests=task.tests,
            changes={path: data for path, data in changes.items() if path not in tampered},
            variations=self._variations,
            limits=replace(self._limits, wall_s=min(self._limits.wall_s, task.timeout_s)),
        )
        try:
            check = Check.of(task)
            _check_size(exam)
            outcomes = _outcomes(task, await self._examine(exam, check))
        except (SandboxPathError, ChangesError) as error:
            return Verification(passed=False, outcomes=_complete(task, {}), tampered=(*tampered, str(error)))
        except EndedWithinError:
            return Verification(passed=False, outcomes=_complete(task, {}), tampered=tampered)
        except SandboxError as error:
            return Verification(passed=False, outcomes={}, tampered=tampered, void=str(error))
        return Verification(
            passed=_all_passed(task, outcomes),
            outcomes=outcomes,
            tampered=tampered,
            forgeable=check is not None,
        )

    async def _examine(self, exam: Exam, check: Check | None) -> list[dict[str, str]]:
        if check is not None:
            return await examine(self._backend, exam, check)
        return await self._backend.examine(exam)


def _outcomes(task: Task, runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """By test id; what passed once and not again is `unstable`."""
    first, last = _complete(task, runs[0]), _complete(task, runs[-1])
    if not _all_passed(task, first):
        return first
    return {name: "passed" if outcome == "passed" else UNSTABLE for name, outcome in last.items()}


def _all_passed(task: Task, outcomes: Mapping[str, str]) -> bool:
    return outcomes.keys() == set(task.test_ids) and set(outcomes.values()) == {"passed"}


def _check_size(exam: Exam) -> None:
    """What no sandbox's disk could have held is not sent to one."""
    size, most = sum(len(data) for data in exam.changes.values() if data), exam.limits.disk_mb << 20
    if size > most:
        raise ChangesError(f"the changes have {size} bytes, a sandbox's disk {most}")


def _is_protected(task: Task, path: str) -> bool:
    """A protected entry covers the path itself and, for a directory, what lies below; so does `.git`.

    So does every name that leads there by a link of the pristine repository, what an entry that is a link
    leads to, and every absolute path: no sandbox names its changes so.
    """
    clean = posixpath.normpath(path)
    if clean.startswith("/") or "\0" in clean:
        return clean.startswith("/")
    entries = [posixpath.normpath(entry) for entry in (*task.protected, tree.GIT)]
    covered = {*entries, *(_real(task, entry) for entry in entries)}
    return any(
        name == entry or name.startswith(f"{entry}/")
        for name in {clean, _real(task, clean)}
        for entry in covered
    )


def _real(task: Task, path: str) -> str:
    """Where a path of the pristine repository leads, its links followed."""
    return os.path.relpath(os.path.realpath(task.repo / path), os.path.realpath(task.repo))


def _complete(task: Task, found: Mapping[str, str]) -> dict[str, str]:
    """Outcomes with the expected tests that did not run; those in a file that failed to load are errors."""
    failed_files = {name for name, outcome in found.items() if "::" not in name and outcome == "error"}
    absent = {
        name: "error" if name.split("::")[0] in failed_files else MISSING
        for name in task.test_ids
        if name not in found
    }
    return {**found, **absent}
