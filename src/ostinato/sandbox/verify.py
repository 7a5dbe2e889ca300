"""Is the task solved? Answered so that the candidate's code cannot forge it.

    Task ─► fresh sandbox of the pristine repo + the candidate's changes, protected paths left out ─► worker
        └─► hidden tests, expected test ids ─► judge ─asks, plain data─► worker
                                                 └─► outcome per test id ─► Verification

Passed means: exactly the expected ids ran and every one passed. What the candidate prints, returns as an exit
status, writes to disk, patches in pytest or registers at exit has no way into that answer.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ostinato.sandbox.base import DEFAULT_LIMITS, Backend, Exam, Limits, SandboxError, SandboxPathError
from ostinato.types import Task

MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the hidden tests say.

    >>> Verification(passed=True, outcomes={"test_hidden.py::test_alpha": "passed"}).void
    """

    passed: bool
    outcomes: Mapping[str, str]
    """By test id: passed, failed, error, skipped or missing. Unexpected ids are listed too, and fail."""
    tampered: tuple[str, ...] = ()
    """Protected paths that the changes touch; the pristine ones were used."""
    void: str | None = None
    """Why there is no answer: something of ours failed, the candidate is not to blame. Never passed."""


class Verifier:
    """Runs hidden tests in sandboxes of `backend`."""

    def __init__(self, backend: Backend, limits: Limits = DEFAULT_LIMITS) -> None:
        self._backend = backend
        self._limits = limits

    async def verify(self, task: Task, changes: Mapping[str, bytes | None]) -> Verification:
        """Judge the pristine repository with `changes` (path to content, None to delete). Never raises for
        what the candidate did; a failure of the machinery gives a void verification."""
        tampered = tuple(sorted(path for path in changes if _is_protected(path, task.protected)))
        exam = Exam(
            repo=task.repo,
            tests=task.tests,
            changes={path: data for path, data in changes.items() if path not in tampered},
            limits=replace(self._limits, wall_s=min(self._limits.wall_s, task.timeout_s)),
        )
        try:
            found = await self._backend.examine(exam)
        except SandboxPathError as error:
            return Verification(passed=False, outcomes=_complete(task, {}), tampered=(*tampered, str(error)))
        except SandboxError as error:
            return Verification(passed=False, outcomes={}, tampered=tampered, void=str(error))
        outcomes = _complete(task, found)
        passed = outcomes.keys() == set(task.test_ids) and set(outcomes.values()) == {"passed"}
        return Verification(passed=passed, outcomes=outcomes, tampered=tampered)


def _is_protected(path: str, protected: tuple[str, ...]) -> bool:
    """A protected entry covers the path itself and, for a directory, what lies below."""
    clean = posixpath.normpath(path)
    return any(clean == entry.rstrip("/") or clean.startswith(entry.rstrip("/") + "/") for entry in protected)


def _complete(task: Task, found: Mapping[str, str]) -> dict[str, str]:
    """Outcomes with the expected tests that did not run; those in a file that failed to load are errors."""
    failed_files = {name for name, outcome in found.items() if "::" not in name and outcome == "error"}
    absent = {
        name: "error" if name.split("::")[0] in failed_files else MISSING
        for name in task.test_ids
        if name not in found
    }
    return {**found, **absent}
