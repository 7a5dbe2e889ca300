"""The home of an edit: the branch on which it was made, and whether HEAD is there.

HEAD's reflog decides. A checkout of another commit leaves home, a new branch at the same commit becomes the
home, and a checkout of the branch returns home. Whether the edit survived plays no part: otherwise leaving
would be noticed only for the edits that did not survive. A branch without commits (`git switch --orphan`) has
no entry in the reflog, so the name in HEAD has a say too.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ostinato.edits.capture.repository_paths import RepositoryPaths, head_of, reflog_of
from ostinato.edits.follow.edit import FollowedEdit

CHECKOUT = re.compile(r"checkout: moving from (\S+) to (\S+)")
RETURNED = re.compile(r"(?:.*\(finish\): returning to|rebase: checkout) (\S+)")
"""The entry with which a rebase ends, whether it did anything or not; `git rebase A B` always ends on B."""
RENAMED = re.compile(r"Branch: renamed (\S+) to (\S+)")
BRANCH = "refs/heads/"
OPERATIONS = {
    "rebase-merge": "rebase_in_progress",
    "rebase-apply": "rebase_in_progress",
    "MERGE_HEAD": "merge_in_progress",
    "CHERRY_PICK_HEAD": "cherry_pick_in_progress",
    "REVERT_HEAD": "revert_in_progress",
}
"""The files below .git by which git remembers an operation that stopped half-way, and its name here."""
LOCKED_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The edit's home and whether HEAD is there.

    >>> Whereabouts(home="refs/heads/main", is_home=True).is_home
    True
    """

    home: str
    is_home: bool


def whereabouts(repo: RepositoryPaths, edit: FollowedEdit) -> Whereabouts:
    """Follow the reflog from the edit on.

    Where git keeps none, or has rewritten it (`git gc`, `git filter-repo`), the branch's name alone decides.
    """
    here, home, is_home = head_of(repo), edit.home, True
    earlier, later = _reflog(repo, edit.reflog)
    if not earlier or earlier[-1].split(" ")[1] != (edit.anchor or earlier[-1].split(" ")[1]):
        return Whereabouts(home=home, is_home=_same_branch(here, home))
    for line in later:
        home, is_home = _step(line, home, is_home=is_home)
    is_other = here.startswith(BRANCH) and home.startswith(BRANCH) and here != home
    return Whereabouts(home=home, is_home=is_home and not is_other)


def unsettled(repo: RepositoryPaths, now: float) -> bool:
    """Return whether git is writing the work tree at this moment. An old lock was left by a crash."""
    lock = Path(repo.git_dir) / "index.lock"
    return lock.exists() and now - lock.stat().st_mtime < LOCKED_S


def operation(repo: RepositoryPaths) -> str:
    """Return which operation of git stopped half-way, so that the work tree is nobody's; empty for none."""
    found = (reason for name, reason in OPERATIONS.items() if (Path(repo.git_dir) / name).exists())
    return next(found, "")


def came_by_checkout(repo: RepositoryPaths) -> bool:
    """Return whether HEAD last moved by a checkout, not by a commit, merge or pull."""
    _, lines = _reflog(repo, 0)
    return bool(lines) and bool(CHECKOUT.match(lines[-1].partition("\t")[2]))


def _reflog(repo: RepositoryPaths, at: int) -> tuple[list[str], list[str]]:
    """Return the entries of HEAD's reflog before byte `at` and after it; none where that splits an entry."""
    log = Path(reflog_of(repo))
    data = log.read_bytes() if log.exists() else b""
    if at > len(data) or (at and data[at - 1 : at] != b"\n"):
        return [], []
    earlier, later = (part.decode(errors="replace").split("\n") for part in (data[:at], data[at:]))
    return [line for line in earlier if line.count(" ") > 1], [line for line in later if line]


def _step(line: str, home: str, *, is_home: bool) -> tuple[str, bool]:
    """Apply one entry of the reflog: `old new name <mail> time zone<TAB>message`."""
    facts, _, message = line.partition("\t")
    if renamed := RENAMED.match(message):
        return (renamed[2] if renamed[1] == home else home), is_home
    if returned := RETURNED.match(message):
        return home, _same_branch(returned[1], home)
    moved = CHECKOUT.match(message)
    if not moved:
        return home, is_home
    old, new = facts.split(" ")[:2]
    if _same_branch(moved.group(2), home) or (not is_home and new == home):
        return home, True
    return (_full(moved.group(2), new), True) if is_home and old == new else (home, False)


def _full(name: str, commit: str) -> str:
    is_commit = re.fullmatch(r"[0-9a-f]{7,64}", name) or name.startswith("HEAD")
    return commit if is_commit else BRANCH + _short(name)


def _same_branch(one: str, other: str) -> bool:
    return _short(one) == _short(other)


def _short(name: str) -> str:
    return name.removeprefix("refs/").removeprefix("heads/")
