"""The home of an edit: the branch on which it was made, and whether HEAD is there.

HEAD's reflog decides. A checkout of another commit leaves home, a new branch at the same commit becomes the
home, and a checkout of the branch returns home. Whether the edit survived plays no part: otherwise leaving
would be noticed only for the edits that did not survive.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ostinato.edits.capture.repository_paths import RepositoryPaths, head_of, reflog_of, size_of, stash_log_of

CHECKOUT = re.compile(r"checkout: moving from (\S+) to (\S+)")
RETURNED = re.compile(r"(?:.*\(finish\): returning to|rebase: checkout) (\S+)")
"""The entry with which a rebase ends, whether it did anything or not; `git rebase A B` always ends on B."""
RENAMED = re.compile(r"Branch: renamed (\S+) to (\S+)")
BRANCH = "refs/heads/"
REBASING = ("rebase-merge", "rebase-apply")
LOCKED_S = 60.0
STASHES = 10
"""The number of newest stashes that are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The edit's home and whether HEAD is there.

    >>> Whereabouts(home="refs/heads/main", is_home=True).is_home
    True
    """

    home: str
    is_home: bool


def whereabouts(repo: RepositoryPaths, home: str, since: int) -> Whereabouts:
    """Follow the reflog from byte `since`. Where git keeps none, the branch's name alone decides."""
    log = Path(reflog_of(repo))
    here = head_of(repo)
    if size_of(str(log)) < since:
        return Whereabouts(home=home, is_home=here == home)
    is_home = True
    for line in _since(log, since):
        home, is_home = _step(line, home, is_home=is_home)
    named = here == home or _same_branch(here, home)
    return Whereabouts(home=home, is_home=is_home if log.exists() and since else named)


def unsettled(repo: RepositoryPaths, now: float) -> bool:
    """Return whether git is writing the work tree at this moment. An old lock was left by a crash."""
    lock = Path(repo.git_dir) / "index.lock"
    return lock.exists() and now - lock.stat().st_mtime < LOCKED_S


def rebasing(repo: RepositoryPaths) -> bool:
    """Return whether a rebase stopped half-way, so that the work tree belongs to no branch."""
    return any((Path(repo.git_dir) / name).exists() for name in REBASING)


def came_by_checkout(repo: RepositoryPaths) -> bool:
    """Return whether HEAD last moved by a checkout, not by a commit, merge or pull."""
    lines = _since(Path(reflog_of(repo)), 0)
    return bool(lines) and bool(CHECKOUT.match(lines[-1].partition("\t")[2]))


def stashed_since(repo: RepositoryPaths, since: int) -> list[str]:
    """Return the commits of the stashes made after byte `since` of their log, newest first."""
    log = Path(stash_log_of(repo))
    lines = _since(log, since) if size_of(str(log)) >= since else []
    return [line.split(" ", 2)[1] for line in reversed(lines)][:STASHES]


def _since(log: Path, since: int) -> list[str]:
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(since)
        return file.read().decode(errors="replace").splitlines()


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
    if is_home and old == new:
        return _full(moved.group(2), new), True
    if is_home:
        return home, False
    return home, _same_branch(moved.group(2), home) or new == home


def _full(name: str, commit: str) -> str:
    return commit if re.fullmatch(r"[0-9a-f]{7,64}", name) or name.startswith("HEAD") else BRANCH + name


def _same_branch(one: str, other: str) -> bool:
    return one.removeprefix(BRANCH) == other.removeprefix(BRANCH)
