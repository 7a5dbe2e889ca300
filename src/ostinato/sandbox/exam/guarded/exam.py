"""Guarded exams: the suite of a repository runs in a fresh sandbox and reports over a signed channel.

    pristine repo + changes + hidden tests ──► fresh sandbox ◄─order, on standard input: sources, plan, nonce
                                                    └─signed outcomes, planted ones among them──► SuiteReports

Tests and tested code share a process, so that code can reach whatever the runner can. These measures make a
forged report hard to write and easy to notice, but not impossible (`docs/verdict.md` lists the known ways).
"""

import asyncio
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from ostinato.sandbox.base import Backend, EndedWithinError, Exam, SandboxError, Spec
from ostinato.sandbox.exam.guarded.reports import ChangedName, SuiteReports
from ostinato.sandbox.exam.guarded.runners.base import SuitePlan, SuiteRunner, hidden_files
from ostinato.sandbox.exam.guarded.suite import RUNNERS, Suite, dealt, planned
from ostinato.sandbox.exam.guarded.witness import Witness
from ostinato.sandbox.exam.variations import GRACE_S, run_variations
from ostinato.sandbox.files import tree
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.protocol.connection import ResponseTimeoutError


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedResult:
    """The runs of a guarded exam.

    >>> GuardedResult(runs=[{"tests/test_a.py::test_x": "passed"}]).signs
    ()
    """

    runs: list[dict[str, str]]
    signs: tuple[str, ...] = ()
    """The signs that the tested code tampered with the run."""
    notes: tuple[str, ...] = ()
    """Sentences on what kept tests from running."""


async def examine(
    backend: Backend, witness: Witness, exam: Exam, suite: Suite, test_ids: tuple[str, ...]
) -> GuardedResult:
    """Run a suite, again in another order and sandbox while all passed.

    Raises ChangesError for the changes, SandboxError when the suite could not be run.
    """
    runner = RUNNERS[suite.runner]
    screened = runner.screen(exam)
    signs, notes = list(screened.signs), list(screened.notes)
    exam = replace(exam, changes=screened.changes)
    kinds = dealt(runner.planted, exam.variations)
    replacements = set[ChangedName]()

    async def run_once(seed: int) -> dict[str, str]:
        plan = SuitePlan(
            nonce=secrets.token_hex(32),
            order=planned(test_ids, seed, kinds[seed]),
            arguments=suite.arguments,
        )
        reports = SuiteReports(plan.nonce, plan.order, runner.planted)
        await _examine(backend, exam, runner, plan, reports)
        outcomes = reports.finish()
        signs.extend(reports.signs)
        notes.extend(reports.notes)
        replacements.update(reports.replacements)
        return outcomes

    runs = await run_variations(exam, run_once)
    signs.extend(await witness.unexplained(exam, replacements))
    return GuardedResult(runs=runs, signs=tuple(dict.fromkeys(signs)), notes=tuple(dict.fromkeys(notes)))


async def _examine(
    backend: Backend, exam: Exam, runner: SuiteRunner, plan: SuitePlan, reports: SuiteReports
) -> None:
    with Scratch("suite") as scratch:
        repo = scratch.path / "repo"
        await asyncio.to_thread(lay_out, exam, repo)
        sandbox = await backend.create(Spec(repo=repo, limits=exam.limits, image=exam.image))
        try:
            async with asyncio.timeout(exam.limits.wall_s + GRACE_S):
                await runner.run(sandbox, exam, plan, reports)
        except (EndedWithinError, ResponseTimeoutError, TimeoutError):
            pass  # a process there ended its sandbox, or keeps it from responding: what was reported counts
        finally:
            await sandbox.destroy()


def lay_out(exam: Exam, repo: Path) -> None:
    """Write the tree that is examined: the pristine repository, the changes, the hidden tests over both."""
    if not exam.repo.is_dir():
        raise SandboxError(f"no repository at {exam.repo}: give a directory")
    shutil.copytree(exam.repo, repo, symlinks=True)
    tree.apply(str(repo), exam.changes)
    for path, source in hidden_files(exam.tests).items():
        target = repo / path
        for above in reversed(target.relative_to(repo).parents[:-1]):
            folder = repo / above
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
            folder.mkdir(exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
