"""The paths of a repository, read from its files alone: the hook command starts no git to find them.

This module imports only what the interpreter has loaded anyway, so that a hook costs an editor nothing.
"""

import os
from collections import namedtuple

STATE = "ostinato"
ENABLED = "enabled"

RepositoryPaths = namedtuple("RepositoryPaths", ["root", "git_dir", "common"])
"""Absolute paths: the top of the work tree, its own git directory, and the one that all work trees share."""


def find_repository(start: str) -> RepositoryPaths | None:
    """Return the repository whose work tree holds `start`, which need not exist; None when there is none."""
    here = os.path.realpath(start)
    while True:
        git_dir = _git_dir(here)
        if git_dir:
            return RepositoryPaths(here, git_dir, _common(git_dir))
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def state_of(repo: RepositoryPaths) -> str:
    """Return the folder below .git that holds everything this room writes."""
    return os.path.join(repo.common, STATE)


def is_enabled(state: str) -> bool:
    """Return whether `ostinato hooks install` was run here: elsewhere nothing is recorded."""
    return os.path.exists(os.path.join(state, ENABLED))


def head_of(repo: RepositoryPaths) -> str:
    """Return the contents of HEAD: `refs/heads/main`, or a commit when it is detached."""
    return _read(os.path.join(repo.git_dir, "HEAD")).strip().removeprefix("ref: ")


def reflog_of(repo: RepositoryPaths) -> str:
    return os.path.join(repo.git_dir, "logs", "HEAD")


def stashes_of(repo: RepositoryPaths) -> list[str]:
    """Return the commits of the stashes, newest first. All work trees of a repository share them."""
    log = os.path.join(repo.common, "logs", "refs", "stash")
    lines = _read(log).splitlines() if size_of(log) else []
    return [line.split(" ", 2)[1] for line in reversed(lines) if line.count(" ") > 1]


def other_worktrees(repo: RepositoryPaths) -> list[RepositoryPaths]:
    """Return the other work trees of the same repository that still exist."""
    above = os.path.join(repo.common, "worktrees")
    names = sorted(os.listdir(above)) if os.path.isdir(above) else []
    pointers = [os.path.join(above, name, "gitdir") for name in names]
    dots = [repo.common, *(_read(pointer).strip() for pointer in pointers if os.path.isfile(pointer))]
    roots = [os.path.dirname(dot) for dot in dots if os.path.basename(dot) == ".git"]
    found = [find_repository(root) for root in roots if os.path.isdir(root)]
    return [other for other in found if other and other.common == repo.common and other.root != repo.root]


def size_of(path: str) -> int:
    """Return the bytes of a file; 0 when it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _git_dir(here: str) -> str:
    dot = os.path.join(here, ".git")
    if os.path.isfile(dot):
        target = _read(dot).strip().removeprefix("gitdir: ")
        dot = os.path.normpath(os.path.join(here, target))
    return dot if os.path.isfile(os.path.join(dot, "HEAD")) else ""


def _common(git_dir: str) -> str:
    pointer = os.path.join(git_dir, "commondir")
    if not os.path.isfile(pointer):
        return git_dir
    return os.path.normpath(os.path.join(git_dir, _read(pointer).strip()))


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
