"""Random journeys of an agent's edit through the operations of git that move or hide text, and the truth.

The truth asks no question that the hooks ask. The edit has a word that nothing else has, and the truth
looks for it everywhere: in all files of every work tree, in the index, in the stashes and under every name. A
verdict that says `reverted` while the word is in such a place takes absence for rejection, unless the
developer's last step did reject the edit.
"""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WORD = "telling_of_the_edit"
HELPERS = "".join(
    f"def helper_{n}(first, second):\n    return first * {n} - second // {n + 1}\n\n\n" for n in range(3)
)
ALPHA = """def alpha(values):
    total = 0
    for value in values:
        total -= value
    return total
"""
START = f'"""Sums."""\n\n\n{HELPERS}{ALPHA}'
EDITS = {
    "block": START.replace(
        "        total -= value\n",
        f"        if value is None:\n            continue\n        total += abs(value) * {WORD}(value)\n",
    ),
    "line": START.replace("first * 1", f"{WORD} * 1"),
}


@dataclass(slots=True)
class Journey:
    """A repository in which one edit is under way."""

    root: Path
    rng: random.Random
    steps: list[str] = field(default_factory=list)
    count: int = 0

    def git(self, *arguments: str) -> bool:
        """Run git; return whether it did what it was asked."""
        return self._run(arguments).returncode == 0

    def lines(self, *arguments: str) -> list[str]:
        return self._run(arguments).stdout.splitlines()

    def name(self) -> str:
        self.count += 1
        return f"name{self.count}"

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def home_of_word(self) -> Path | None:
        """Return the file of this work tree that has the word and that git does not ignore."""
        listed = self.lines("ls-files", "--cached", "--others", "--exclude-standard", "*.py")
        paths = (self.root / path for path in sorted(set(listed)))
        return next((path for path in paths if path.is_file() and WORD in path.read_text()), None)

    def truth(self) -> str:
        """Return `here`, `aside` or `gone`: where the word of the edit is."""
        index = self.git("grep", "--cached", "-qF", WORD)
        is_sparse = any(line.startswith("S ") for line in self.lines("ls-files", "-t"))
        if self.home_of_word() or (index and is_sparse):
            return "here"
        # What HEAD holds and the work tree lacks was taken out of it, or is staged no more.
        refs = self.lines("for-each-ref", "--no-merged=HEAD", "--format=%(refname)")
        stashes = [f"{id}{part}" for id in self.lines("stash", "list", "--format=%H") for part in ("", "^3")]
        worktrees = [
            line[9:] for line in self.lines("worktree", "list", "--porcelain") if line[:9] == "worktree "
        ]
        chosen = [ref for ref in refs if not ref.startswith(("refs/original/", "refs/stash"))]
        kept = any(self.git("grep", "-qF", WORD, commit) for commit in [*chosen, *stashes])
        is_staged = index and not self.git("grep", "-qF", WORD, "HEAD")
        files = [path for root in map(Path, worktrees) if root.is_dir() for path in self._files(root)]
        return "aside" if kept or is_staged or any(WORD in path.read_text() for path in files) else "gone"

    @staticmethod
    def _files(root: Path) -> list[Path]:
        """Return every file of a work tree, ignored ones, notebooks and patches too."""
        return [path for path in sorted(root.rglob("*")) if ".git" not in path.parts and path.is_file()]

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def begin(root: Path, seed: int) -> Journey:
    """Create the repository: a branch with two modules, and work of the developer that is not committed."""
    root.mkdir(parents=True)
    journey = Journey(root=root, rng=random.Random(f"journey/{seed}"))
    journey.git("init", "-q", "-b", "main")
    journey.write("pkg/calc.py", START)
    journey.write("other/own.py", "def own():\n    return 1\n")
    journey.write("notes.txt", "notes\n")
    journey.git("add", "-A")
    journey.git("commit", "-qm", "start")
    journey.git("branch", "side")
    return journey


def own_work(j: Journey) -> None:
    """Change another file, and stash that alone."""
    j.write("other/own.py", f"def own():\n    return {j.rng.randrange(10**6)}\n")
    j.git("stash", "push", "-q", "--", "other/own.py")


def commit(j: Journey) -> None:
    j.git("add", "-A")
    j.git("commit", "-qm", "work")


def amend(j: Journey) -> None:
    j.git("commit", "-q", "--amend", "--allow-empty", "-am", "amended")


def stash(j: Journey) -> None:
    j.git("stash", "-q", "-u")


def stash_pop(j: Journey) -> None:
    if j.git("stash", "list") and not j.git("stash", "pop", "-q", "--index"):
        j.git("stash", "pop", "-q")


def stash_pop_older(j: Journey) -> None:
    j.git("stash", "pop", "-q", f"stash@{{{max(0, len(j.lines('stash', 'list')) - 1)}}}")


def stash_apply(j: Journey) -> None:
    j.git("stash", "apply", "-q")


def stash_drop(j: Journey) -> None:
    j.git("stash", "drop", "-q")


def stash_drop_older(j: Journey) -> None:
    j.git("stash", "drop", "-q", f"stash@{{{max(0, len(j.lines('stash', 'list')) - 1)}}}")


def stash_branch(j: Journey) -> None:
    j.git("stash", "branch", j.name())


def switch_away(j: Journey) -> None:
    j.git("switch", "-q", "side") or j.git("switch", "-q", "main")


def switch_home(j: Journey) -> None:
    j.git("switch", "-q", "main")


def switch_carrying(j: Journey) -> None:
    j.git("switch", "-q", "-c", j.name())


def orphan(j: Journey) -> None:
    j.git("switch", "-q", "--orphan", j.name())


def rename_branch(j: Journey) -> None:
    j.git("branch", "-m", j.name())


def force_branch(j: Journey) -> None:
    """Keep the commits on a new branch, and put the branch back to where it began: `git checkout -B`."""
    here = "".join(j.lines("branch", "--show-current"))
    if here and j.git("diff", "--quiet", "HEAD"):
        j.git("branch", j.name())
        j.git("checkout", "-q", "-B", here, "side")


def moved_to_a_branch(j: Journey) -> None:
    if j.git("diff", "--quiet", "HEAD") and j.git("branch", j.name()):
        j.git("reset", "-q", "--hard", "side")


def rebase(j: Journey) -> None:
    j.write("other/side.py", f"side = {j.rng.randrange(10**6)}\n")
    if j.git("stash", "-q", "-u") and j.git("rebase", "-q", "side"):
        j.git("stash", "pop", "-q")


def autosquash(j: Journey) -> None:
    j.write("notes.txt", f"{j.rng.randrange(10**6)}\n")
    j.git("commit", "-q", "--fixup", "HEAD", "notes.txt")
    j.git("-c", "sequence.editor=true", "rebase", "-q", "-i", "--autosquash", "--autostash", "side")


def squash_merge(j: Journey) -> None:
    here = "".join(j.lines("branch", "--show-current"))
    if here and j.git("diff", "--quiet", "HEAD"):
        j.git("switch", "-q", "-c", j.name(), "side")
        j.git("merge", "-q", "--squash", here)
        j.git("commit", "-qm", "squashed")


def cherry_pick_elsewhere(j: Journey) -> None:
    tip = "".join(j.lines("rev-parse", "HEAD"))
    if j.git("switch", "-q", "-c", j.name(), "side") and not j.git("cherry-pick", tip):
        j.git("cherry-pick", "--abort")


def conflict_left(j: Journey) -> None:
    """Leave a rebase half-way, look away, and come back to it later."""
    j.git("switch", "-q", "-c", "theirs", "side")
    j.write(
        "pkg/calc.py", START.replace("first * 1", "first * 77").replace("total -= value", "total ^= value")
    )
    j.git("commit", "-qam", "theirs")
    j.git("switch", "-q", "-")
    j.git("rebase", "-q", "--autostash", "theirs")


def abort(j: Journey) -> None:
    for kind in ("rebase", "merge", "cherry-pick", "revert"):
        j.git(kind, "--abort")


def filter_messages(j: Journey) -> None:
    j.git("filter-branch", "-f", "--msg-filter", "sed s/work/labour/", "HEAD")


def filter_subdirectory(j: Journey) -> None:
    j.git("filter-branch", "-f", "--tree-filter", "mkdir -p deep && mv pkg deep/ 2>/dev/null || true", "HEAD")


def reset_soft(j: Journey) -> None:
    j.git("reset", "-q", "--soft", "side")


def reset_mixed(j: Journey) -> None:
    j.git("reset", "-q", "side")


def git_mv(j: Journey) -> None:
    """Rename the file of the edit by the case of a letter."""
    if path := j.home_of_word():
        target = path.with_name(path.name.swapcase().replace("PY", "py"))
        j.git("mv", str(path), str(target)) or path.rename(target)


def plain_mv(j: Journey) -> None:
    if path := j.home_of_word():
        path.rename(path.with_name(f"{j.name()}.py"))


def split_file(j: Journey) -> None:
    """Make one file of each function."""
    if path := j.home_of_word():
        head, *functions = path.read_text().split("def ")
        path.unlink()
        for function in functions:
            path.with_name(f"{j.name()}.py").write_text(f"{head}def {function}")


def sparse(j: Journey) -> None:
    j.git("sparse-checkout", "set", "other")


def not_sparse(j: Journey) -> None:
    j.git("sparse-checkout", "disable")


def worktree_pop(j: Journey) -> None:
    """Take the work along into another work tree."""
    place = j.root.parent / j.name()
    if j.git("worktree", "add", "-q", "--detach", str(place), "side") and j.git("stash", "-q", "-u"):
        subprocess.run(["git", "-C", str(place), "stash", "pop", "-q"], capture_output=True, check=False)


def worktree_removed(j: Journey) -> None:
    for line in j.lines("worktree", "list", "--porcelain")[1:]:
        if line.startswith("worktree "):
            j.git("worktree", "remove", "--force", line[9:])


def reflog_expired(j: Journey) -> None:
    j.git("reflog", "expire", "--expire=now", "HEAD")
    j.git("gc", "-q")


def no_reflog(j: Journey) -> None:
    shutil.rmtree(j.root / ".git" / "logs" / "refs" / "heads", ignore_errors=True)


def kept_under_a_name(j: Journey) -> None:
    """Keep the commits under a name that is no branch, and put the branch back to where it began."""
    if j.git("diff", "--quiet", "HEAD") and j.git("update-ref", f"refs/wip/{j.name()}", "HEAD"):
        j.git("reset", "-q", "--hard", "side")


def tagged(j: Journey) -> None:
    if j.git("diff", "--quiet", "HEAD") and j.git("tag", "-a", "-m", "kept", j.name()):
        j.git("reset", "-q", "--hard", "side")


def staged_alone(j: Journey) -> None:
    """Stage everything, and put the work tree back to HEAD behind the index."""
    j.git("add", "-A")
    j.git("restore", "-q", "--source=HEAD", "--worktree", ".")


def into_an_ignored_folder(j: Journey) -> None:
    if path := j.home_of_word():
        (j.root / ".git" / "info" / "exclude").write_text("scratch/\n")
        (j.root / "other" / "scratch").mkdir(parents=True, exist_ok=True)
        path.rename(j.root / "other" / "scratch" / path.name)


def into_ignored_notes(j: Journey) -> None:
    """Keep the text in a note of another name, and put the file back."""
    if path := j.home_of_word():
        (j.root / ".git" / "info" / "exclude").write_text("scratch/\n")
        j.write(f"other/scratch/{j.name()}.txt", path.read_text())
        path.write_text(START)


def into_a_notebook(j: Journey) -> None:
    if path := j.home_of_word():
        cells = [{"cell_type": "code", "source": path.read_text().splitlines(keepends=True)}]
        j.write(f"{j.name()}.ipynb", json.dumps({"cells": cells, "nbformat": 4}, indent=1))
        path.write_text(START)


def into_a_patch(j: Journey) -> None:
    """Keep the changes in a file, and put the work tree back."""
    if patch := j.lines("diff", "HEAD"):
        j.write(f"{j.name()}.patch", "\n".join(patch) + "\n")
        j.git("checkout", "-q", "HEAD", "--", ".")


def into_a_repository_of_its_own(j: Journey) -> None:
    if path := j.home_of_word():
        place = j.root / j.name()
        subprocess.run(["git", "init", "-q", str(place)], check=True, capture_output=True)
        path.rename(place / path.name)


def revert(j: Journey) -> None:
    if not j.git("revert", "--no-edit", "HEAD"):
        j.git("revert", "--abort")


def restore(j: Journey) -> None:
    j.git("checkout", "-q", "HEAD", "--", ".")


def put_back(j: Journey) -> None:
    if path := j.home_of_word():
        path.write_text(START)


def reset_hard(j: Journey) -> None:
    j.git("reset", "-q", "--hard", "side")


REJECTING: Sequence[Callable[[Journey], None]] = (revert, restore, put_back, reset_hard, stash_drop)
STEPS: Sequence[Callable[[Journey], None]] = (
    *(own_work, own_work, commit, commit, commit, amend, stash, stash, stash_pop, stash_pop, stash_pop_older),
    *(stash_apply, stash_drop_older, stash_branch, switch_away, switch_home, switch_home, switch_carrying),
    *(orphan, rename_branch, force_branch, moved_to_a_branch, rebase, autosquash, squash_merge),
    *(cherry_pick_elsewhere, conflict_left, abort, filter_messages, filter_subdirectory, reset_soft),
    *(reset_mixed, git_mv, plain_mv, split_file, sparse, not_sparse, worktree_pop, worktree_removed),
    *(kept_under_a_name, tagged, staged_alone, into_an_ignored_folder, into_ignored_notes, into_a_notebook),
    *(into_a_patch, into_a_repository_of_its_own, reflog_expired, no_reflog, *REJECTING),
)
