"""Whether the work tree is still the one the edit was made in.

HEAD's reflog tells: a checkout of another commit leaves the edit's home, a new branch at the same commit
takes the home along, coming back to the branch comes home. Whether the edit survived plays no part in it, or
leaving would be seen only in the edits that did not.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ostinato.edits.capture.repository_paths import RepositoryPaths, head_of, reflog_of, size_of, stash_log_of

CHECKOUT = re.compile(r"checkout: moving from (\S+) to (\S+)")
RETURNED = re.compile(r"(?:.*\(finish\): returning to|rebase: checkout) (\S+)")
"""How a rebase ends, with something to do or without; `git rebase A B` ends on B wherever it began."""
RENAMED = re.compile(r"Branch: renamed (\S+) to (\S+)")
BRANCH = "refs/heads/"
REBASING = ("rebase-merge", "rebase-apply")
LOCKED_S = 60.0
STASHES = 10
"""Newest stashes looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The edit's home and whether HEAD is there.

    >>> Whereabouts(home="refs/heads/main", is_home=True).is_home
    True
    """

    home: str
    is_home: bool


def whereabouts(repo: RepositoryPaths, home: str, since: int) -> Whereabouts:
    """Follows the reflog from byte `since`. Where it was not kept, the branch's name alone decides."""
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
    """Whether git is rewriting the work tree at this moment. A lock that stays was left by a crash."""
    lock = Path(repo.git_dir) / "index.lock"
    return lock.exists() and now - lock.stat().st_mtime < LOCKED_S


def rebasing(repo: RepositoryPaths) -> bool:
    """Whether a rebase stopped half-way: the work tree is nobody's."""
    return any((Path(repo.git_dir) / name).exists() for name in REBASING)


def came_by_checkout(repo: RepositoryPaths) -> bool:
    """Whether HEAD last moved by a checkout, not by a commit, merge or pull."""
    lines = _since(Path(reflog_of(repo)), 0)
    return bool(lines) and bool(CHECKOUT.match(lines[-1].partition("\t")[2]))


def stashed_since(repo: RepositoryPaths, since: int) -> list[str]:
    """Commits of the stashes made after byte `since` of their log, newest first; dropped ones are gone."""
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
    """One entry of the reflog: `old new who <mail> time zone<TAB>message`."""
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
