"""What became of an edit, as the hooks tell it, against an exact reference, on random histories.

    python -m benchmarks.survival [--histories 240] [--first 0] [--json]

A history is a repository of modules of the standard library, one or two edits by agents, and then four to
nine steps of a person: commit, revert, cherry-pick, rebase, squash, merge, rename, move, reformat, change.
After each step the verdict of `measure` on the work tree is compared with the reference of `histories.py`; at
the end so is the last verdict that the reporter told. A history ends at its first disagreement. The last line
of output is JSON with `histories, disagreements, comparisons, skipped_steps, cpu_seconds`.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.histories import Line, Repository, propose, sources, verdict
from benchmarks.history_steps import STEPS
from ostinato.edits.capture.places import state_of
from ostinato.edits.follow.edit import Edit, opened
from ostinato.edits.follow.measure import measure
from ostinato.edits.follow.windows import ManualClock
from ostinato.edits.git import WorkTree
from ostinato.edits.install.git_hooks import find, install
from ostinato.edits.record import record_edit
from ostinato.edits.report.reporter import Reporter
from ostinato.edits.report.settings import Settings

SETTLED = (900, 3_600, 86_400, 259_200)
"""Windows, in seconds after the edit, at which every verdict is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Where the hooks and the reference differ."""

    seed: int
    after: tuple[str, ...]
    said: str
    is_: str
    told: bool
    """Whether it is what the reporter told, not only what the measurement found."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    comparisons: int = 0
    skipped: int = 0
    disagreement: Disagreement | None = None


def run_history(seed: int, folder: Path) -> Outcome:
    """One history in an empty folder; stops at the first disagreement."""
    rng = random.Random(f"survival/{seed}")
    here, clock = begin(rng, folder), ManualClock()
    reporter = Reporter(find(folder), clock, Settings(url="", key=""), None)
    state, found, done = Path(state_of(find(folder))), Outcome(), []
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
            found.comparisons += 1
            found.disagreement = compared(seed, here, edit, edits, done)
            if found.disagreement:
                return found
    clock.at = max(clock.at, min(e.proposed_at for e in edits.values())) + 90_000
    reporter.tick()
    for edit in edits.values():
        found.comparisons += 1
        is_, said = truth(here, edit), told(reporter, edit.id)
        if is_ != said:
            found.disagreement = Disagreement(seed=seed, after=tuple(done), said=said, is_=is_, told=True)
    found.skipped = here.skipped
    return found


def begin(rng: random.Random, folder: Path) -> Repository:
    """A repository with three modules in two folders, and a branch to work on."""
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
    """An agent's edit, recorded as a harness records it."""
    donor = sources(here.rng, 1)[0]
    while True:
        path = here.rng.choice(sorted(here.files))
        before = here.text(path)
        if edit := propose(here.rng, here.files, path, at=clock.now(), donor=donor, busy=here.busy()):
            break
    here.save()
    record_edit(
        str(here.root),
        f"s{number}",
        number,
        path,
        before=before,
        after=here.text(path),
        at=clock.now(),
        start_reporter=False,
    )
    here.edits.append(edit)


def compared(
    seed: int, here: Repository, edit: Edit, edits: dict[str, Edit], done: Sequence[str]
) -> Disagreement | None:
    later = [other for other in edits.values() if other.proposed_at > edit.proposed_at]
    said = measure(edit, WorkTree(str(here.root)), later).verdict.value
    is_ = truth(here, edit)
    return None if said == is_ else Disagreement(seed=seed, after=tuple(done), said=said, is_=is_, told=False)


def truth(here: Repository, edit: Edit) -> str:
    (proposal,) = [p for p in here.edits if p.at == edit.proposed_at]
    return verdict(proposal, here.files).value


def told(reporter: Reporter, edit: str) -> str:
    """The last verdict on an edit in the journal."""
    signals = [e["signal"] for e in reporter.journal.entries() if "signal" in e and e["edit"] == edit]
    return signals[-1].removeprefix("edit_") if signals else ""


def record_git(here: Repository) -> None:
    from ostinato.edits.capture import spool

    places = find(here.root)
    spool.put(state_of(places), {"kind": "git", "hook": "post-commit", "root": places.root, "at": 0.0})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--histories", type=int, default=240)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    os.environ["GIT_CONFIG_GLOBAL"] = os.environ["GIT_CONFIG_SYSTEM"] = os.devnull
    comparisons = skipped = 0
    wrong: list[Disagreement] = []
    for seed in range(options.first, options.first + options.histories):
        with tempfile.TemporaryDirectory() as folder:
            found = run_history(seed, Path(folder).resolve())
        comparisons, skipped = comparisons + found.comparisons, skipped + found.skipped
        if found.disagreement:
            wrong.append(found.disagreement)
            print(found.disagreement, flush=True)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "histories": options.histories,
        "disagreements": len(wrong),
        "comparisons": comparisons,
        "skipped_steps": skipped,
        "cpu_seconds": round(sum(each.ru_utime + each.ru_stime for each in used), 1),
    }
    print(json.dumps(figures) if options.json else "\n".join(f"{k:<16} {v}" for k, v in figures.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
