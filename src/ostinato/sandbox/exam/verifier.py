"""The verifier: it decides if a task is solved, in a way that the candidate's code cannot forge.

    Task ─► fresh sandbox of the pristine repo + the candidate's changes, protected paths left out ─► worker
        └─► hidden tests, expected test ids ─► judge ─questions, plain data─► worker
                                                 └─► outcome per test id ─► Verification

A task passes if exactly the expected tests ran and all of them passed, and passed again in another order in
another sandbox. Output, exit status, files on disk, patches of pytest and exit handlers of the candidate
cannot influence that. Tasks with the suite of a real repository run it under guard (see `guarded`), and
tasks in other languages bring a command (see `command`); their verdicts have lower grades.
"""

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ostinato.assertions import undecided_on_disk
from ostinato.sandbox.base import (
    Backend,
    ChangesError,
    EndedWithinError,
    Exam,
    JudgedElsewhere,
    Limits,
    SandboxError,
    SandboxPathError,
)
from ostinato.sandbox.exam.command import exam as command_exam
from ostinato.sandbox.exam.command.exam import Check
from ostinato.sandbox.exam.guarded import exam as guarded_exam
from ostinato.sandbox.exam.guarded.exam import GuardedResult
from ostinato.sandbox.exam.guarded.suite import Suite
from ostinato.sandbox.exam.guarded.witness import Witness
from ostinato.sandbox.exam.task_needs import image_of, limits_of
from ostinato.sandbox.files import tree
from ostinato.types import Grade, Task

MISSING, UNSTABLE = "missing", "unstable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of the hidden tests.

    >>> Verification(passed=True, outcomes={"test_hidden.py::test_alpha": "passed"}).void
    """

    passed: bool
    outcomes: Mapping[str, str]
    """One of passed, failed, error, skipped, missing and unstable for each test id. Unexpected ids fail."""
    tampered: tuple[str, ...] = ()
    """Protected paths that the changes touch; the pristine files were used instead."""
    void: str | None = None
    """The failure of our machinery that left the exam without a result. A void exam has never passed."""
    grade: Grade = Grade.JUDGED
    """The trust that this verdict deserves."""
    notes: tuple[str, ...] = ()
    """Sentences on what kept tests from running, and on assertions that the tested code decides."""


class Verifier:
    """A runner of hidden tests in sandboxes of `backend`, or of the one that holds its exams.

    `limits` are those of each sandbox, by default what the task needs; a run has at most the task's own time.
    `variations` is how often a passed exam is repeated, each time in another order; 0 only if the caller
    repeats passed exams itself.
    """

    def __init__(self, backend: Backend, limits: Limits | None = None, *, variations: int = 1) -> None:
        self._backend = backend.judge if isinstance(backend, JudgedElsewhere) else backend
        self._limits = limits
        self._variations = variations
        self._witness = Witness(self._backend)

    async def verify(self, task: Task, changes: Mapping[str, bytes | None]) -> Verification:
        """Judge the pristine repository with `changes` (path to content, None to delete).

        Never raises for an action of the candidate; a failure of the machinery makes the verification void.
        """
        tampered = tuple(sorted(path for path in changes if _is_protected(task, path)))
        undecided = _undecided(task)
        grade = min(task.grade, Grade.GUARDED if undecided else Grade.JUDGED, key=list(Grade).index)
        limits = limits_of(task) if self._limits is None else self._limits
        exam = Exam(
            repo=task.repo,
            tests=task.tests,
            changes={path: data for path, data in changes.items() if path not in tampered},
            variations=self._variations,
            image=image_of(task),
            limits=replace(limits, wall_s=min(limits.wall_s, task.timeout_s)),
        )
        try:
            _check_size(exam)
            result = await self._examine(task, exam)
        except (SandboxPathError, ChangesError) as error:
            tampered = (*tampered, str(error))
            return Verification(passed=False, outcomes=_complete(task, {}), tampered=tampered, grade=grade)
        except EndedWithinError:
            return Verification(passed=False, outcomes=_complete(task, {}), tampered=tampered, grade=grade)
        except SandboxError as error:
            return Verification(passed=False, outcomes={}, tampered=tampered, void=str(error), grade=grade)
        outcomes = _outcomes(task, result.runs)
        return Verification(
            passed=_all_passed(task, outcomes) and not result.signs,
            outcomes=outcomes,
            tampered=(*tampered, *result.signs),
            grade=grade,
            notes=(*result.notes, *undecided),
        )

    async def _examine(self, task: Task, exam: Exam) -> GuardedResult:
        """Hold the exam in the way that the task asks for. Raises SandboxError."""
        if suite := Suite.of(task):
            return await guarded_exam.examine(self._backend, self._witness, exam, suite, task.test_ids)
        if check := Check.of(task):
            return GuardedResult(runs=await command_exam.examine(self._backend, exam, check))
        return GuardedResult(runs=await self._backend.examine(exam))


def _undecided(task: Task) -> tuple[str, ...]:
    """Return a sentence for each test of the judge about which the candidate's code could decide."""
    if {"suite", "check"} & task.metadata.keys() or not task.repo.is_dir():
        return ()
    return undecided_on_disk(task.tests, task.repo, task.test_ids)


def _outcomes(task: Task, runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the outcomes by test id; a test that passed only in the first run is `unstable`."""
    first, last = _complete(task, runs[0]), _complete(task, runs[-1])
    if not _all_passed(task, first):
        return first
    return {name: "passed" if outcome == "passed" else UNSTABLE for name, outcome in last.items()}


def _all_passed(task: Task, outcomes: Mapping[str, str]) -> bool:
    return outcomes.keys() == set(task.test_ids) and set(outcomes.values()) == {"passed"}


def _check_size(exam: Exam) -> None:
    """Raise ChangesError for changes that no sandbox's disk could have held."""
    size, most = sum(len(data) for data in exam.changes.values() if data), exam.limits.disk_mb << 20
    if size > most:
        raise ChangesError(f"the changes have {size} bytes, a sandbox's disk {most}")


def _is_protected(task: Task, path: str) -> bool:
    """Return True if an entry of `task.protected`, or `.git`, covers the path or a directory above it.

    Links of the pristine repository are followed, in the path and in the entry. Absolute paths count as
    protected, because no sandbox names its changes so.
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
    """Return a path of the pristine repository with its links followed."""
    return os.path.relpath(os.path.realpath(task.repo / path), os.path.realpath(task.repo))


def _complete(task: Task, outcomes: Mapping[str, str]) -> dict[str, str]:
    """Add the expected tests that did not run, as errors if their file failed to load."""
    failed_files = {name for name, outcome in outcomes.items() if "::" not in name and outcome == "error"}
    absent = {
        name: "error" if name.split("::")[0] in failed_files else MISSING
        for name in task.test_ids
        if name not in outcomes
    }
    return {**outcomes, **absent}
