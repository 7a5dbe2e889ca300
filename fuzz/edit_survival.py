"""The verdicts of `edits` on an agent's edits against an exact reference, on random histories.

A history is a repository of modules of the standard library, one or two edits by agents, and then four to
nine steps of a person: commit, revert, cherry-pick, rebase, squash, merge, rename, move, reformat, change.
After each step the verdict of `measure` on the work tree is compared with the reference of `edit_histories`;
at the end the last verdict of the reporter is compared too. A history ends at its first disagreement.
"""

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.edits.report.settings import Settings

from fuzz.edit_histories import Line, Repository, propose, sources
from fuzz.edit_histories import verdict as exact_verdict
from fuzz.edit_steps import STEPS
from ostinato.edits.capture.hook_command import record_edit
from ostinato.edits.capture.repository_paths import state_of
from ostinato.edits.follow.edit import FollowedEdit, opened
from ostinato.edits.follow.measure import measure
from ostinato.edits.follow.windows import ManualClock
from ostinato.edits.git import WorkTree
from ostinato.edits.install.git_hooks import find, install
from ostinato.edits.report.reporter import EditReporter

SETTLED = (900, 3_600, 86_400, 259_200)
"""The ages of an edit, in seconds, at which its verdict is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A difference between the hooks and the reference."""

    seed: int
    after: tuple[str, ...]
    verdict: str
    expected: str
    reported: bool
    """Whether the reporter sent this verdict; else only the measurement returned it."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    comparisons: int = 0
    skipped: int = 0
    disagreement: Disagreement | None = None


def run_history(seed: int, folder: Path) -> Outcome:
    """Run one history in an empty folder, up to the first disagreement."""
    rng = random.Random(f"survival/{seed}")
    here, clock = begin(rng, folder), ManualClock()
    reporter = EditReporter(find(folder), clock, Settings(url="", key=""), None)
    state, outcome, done = Path(state_of(find(folder))), Outcome(), []
    for number in range(rng.choice((1, 1, 2))):
        agent(here, clock, number)
        reporter.tick()
        clock.at += 1
    edits = {edit.id: edit for edit in opened(state)}
    for step in [rng.choice(STEPS) for _ in range(rng.randrange(4, 10))]:
        if not here.attempt(step):
            continue
        done.append(step.__name__)
        clock.at += 5
        record_git(here)
        reporter.tick()
        for edit in edits.values():
            outcome.comparisons += 1
            outcome.disagreement = compared(seed, here, edit, edits, done)
            if outcome.disagreement:
                return outcome
    clock.at = max(clock.at, min(e.proposed_at for e in edits.values())) + 90_000
    reporter.tick()
    for edit in edits.values():
        outcome.comparisons += 1
        expected, verdict = truth(here, edit), reported(reporter, edit.id)
        if expected != verdict:
            outcome.disagreement = Disagreement(
                seed=seed, after=tuple(done), verdict=verdict, expected=expected, reported=True
            )
    outcome.skipped = here.skipped
    return outcome


def begin(rng: random.Random, folder: Path) -> Repository:
    """Create a repository with three modules in two folders, and a branch to work on."""
    here = Repository(root=folder, rng=rng)
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    for name, value in (
        ("user.name", "t"),
        ("user.email", "t@t"),
        ("gc.auto", "0"),
        ("core.autocrlf", "false"),
    ):
        here.git("config", name, value)
    for path, lines in zip(("pkg/one.py", "pkg/two.py", "three.py"), sources(rng, 3), strict=True):
        here.files[path] = [Line(text) for text in lines]
    here.save()
    here.commit("start")
    here.git("switch", "-q", "-c", "work")
    install(find(folder), git_hooks=False)
    return here


def agent(here: Repository, clock: ManualClock, number: int) -> None:
    """Make an agent's edit and record it as a harness does."""
    donor = sources(here.rng, 1)[0]
    while True:
        path = here.rng.choice(sorted(here.files))
        before = here.text(path)
        if edit := propose(here.rng, here.files, path, at=clock.now(), donor=donor, busy=here.busy()):
            break
    here.save()
    event = {
        "session_id": f"s{number}",
        "turn": number,
        "cwd": str(here.root),
        "path": path,
        "before": before,
        "after": here.text(path),
    }
    record_edit(event, at=clock.now(), start_reporter=False)
    here.edits.append(edit)


def compared(
    seed: int, here: Repository, edit: FollowedEdit, edits: dict[str, FollowedEdit], done: Sequence[str]
) -> Disagreement | None:
    later = [other for other in edits.values() if other.proposed_at > edit.proposed_at]
    verdict, expected = measure(edit, WorkTree(str(here.root)), later).verdict.value, truth(here, edit)
    if verdict == expected:
        return None
    return Disagreement(seed=seed, after=tuple(done), verdict=verdict, expected=expected, reported=False)


def truth(here: Repository, edit: FollowedEdit) -> str:
    (proposal,) = [p for p in here.edits if p.at == edit.proposed_at]
    return exact_verdict(proposal, here.files).value


def reported(reporter: EditReporter, edit: str) -> str:
    """Return the last verdict on an edit in the journal."""
    signals = [e["kind"] for e in reporter.journal.entries() if "kind" in e and e["edit"] == edit]
    return signals[-1].removeprefix("edit_") if signals else ""


def record_git(here: Repository) -> None:
    from ostinato.edits.capture import spool

    places = find(here.root)
    spool.put(state_of(places), {"kind": "git", "hook": "post-commit", "root": places.root, "at": 0.0})
