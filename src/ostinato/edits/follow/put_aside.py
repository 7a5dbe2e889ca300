"""The places in which git keeps lines that the work tree lacks: they were put aside, not taken back.

A place counts only if it brought the lines: it holds them, and the commit that it began from does not. So a
stash of other work, made while the edit was committed, is no reason to doubt a later revert of that commit.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from ostinato.edits.capture.repository_paths import (
    RepositoryPaths,
    find_repository,
    head_of,
    other_worktrees,
    stashes_of,
)
from ostinato.edits.capture.spool import text_of
from ostinato.edits.follow.edit import FollowedEdit
from ostinato.edits.follow.wrapped_text import UnwrappedTree, is_wrapped
from ostinato.edits.git import (
    CommitTree,
    FileTree,
    IndexTree,
    OneFile,
    WorkTree,
    ask,
    contains,
    git,
    head_commit,
    ignored,
)

MOST_PLACES = 10
"""The newest stashes, the newest branches and the work trees that are searched."""
MOST_IGNORED = 100
BUILT = frozenset(
    {"build", "dist", "out", "target", "bin", "obj", "node_modules", "site-packages", "__pycache__", ".eggs"}
    | {".venv", "venv", "env", ".tox", ".nox", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
"""The folders in which programs keep what they make of the sources."""
AUTOMATIC = ("refs/stash", "refs/original/", "refs/jj/", "refs/notes/", "refs/replace/")
"""The names that git and its tools give by themselves: what they keep, nobody decided to keep."""
Holds = Callable[[FileTree], bool]


def put_aside(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> str:
    """Return where the lines of an edit are kept that the work tree lacks; empty where they are nowhere.

    `holds` says whether a tree holds the edit. Raise GitCommandError.
    """

    def holds_in_any_form(tree: FileTree) -> bool:
        is_wrapped_in = edit.after is not None and any(map(is_wrapped, tree.changed(edit.base)))
        return holds(tree) or (is_wrapped_in and holds(UnwrappedTree(tree=tree)))

    places = {
        "staged": _in_the_index,
        "stashed": _in_a_stash,
        "other_worktree": _in_another_worktree,
        "other_branch": _on_another_branch,
        "submodule": _in_another_repository,
        "other_form": _in_another_form,
        "ignored": _among_ignored_files,
    }
    return next((reason for reason, looks in places.items() if looks(edit, repo, holds_in_any_form)), "")


def _in_the_index(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether the lines are staged, and not committed."""
    return _is_uncommitted(edit, IndexTree(edit.root), holds)


def _in_a_stash(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether a stash made since the edit brought it; the third parent has the untracked files."""
    for stash in [id for id in stashes_of(repo) if id not in edit.stashes][:MOST_PLACES]:
        began, untracked = (_commit(edit.root, f"{stash}^{number}") for number in (1, 3))
        parts = [stash, *([untracked] if untracked and edit.after is not None else [])]
        if _brought(edit, began, parts, holds):
            return True
    return False


def _in_another_worktree(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether the lines lie uncommitted in another work tree, as after `git stash pop` there."""
    roots = [other.root for other in other_worktrees(repo)[:MOST_PLACES]]
    trees = [tree for root in roots for tree in (WorkTree(root), IndexTree(root))]
    return any(_is_uncommitted(edit, tree, holds) for tree in trees)


def _is_uncommitted(edit: FollowedEdit, tree: WorkTree | IndexTree, holds: Holds) -> bool:
    return holds(tree) and not _holds_at(edit, head_commit(tree.root), holds)


def _on_another_branch(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether a branch, or another name that HEAD does not contain, brought the lines since the edit.

    When HEAD contains the edit's own commit, its history took the lines back, whatever other branches hold.
    """
    head = head_commit(edit.root)
    if head is None or (edit.commit and contains(edit.root, edit.commit, head)):
        return False
    for tip in _tips(edit, repo):
        fork = ask(edit.root, "merge-base", head, tip)
        is_deletion = all(hunk.b1 == hunk.b2 for hunk in edit.hunks)
        if is_deletion and not (edit.base and contains(edit.root, edit.base, tip)):
            continue  # a branch that never had the lines has not deleted them
        if _brought(edit, fork, [tip], holds):
            return True
    named = _named(edit) if edit.after is not None else ()
    return any(holds(tree) and not _holds_at(edit, edit.base, holds) for tree in named)


def _named(edit: FollowedEdit) -> Iterator[FileTree]:
    """Yield what has a name and is no commit: a tree, a file, and what a tag of a tag leads to."""
    listed = ask(edit.root, "for-each-ref", "--format=%(refname) %(objecttype) %(*objecttype)") or ""
    for name, *kinds in map(str.split, listed.splitlines()):
        if kinds[-1] == "commit" or name.startswith(AUTOMATIC):
            continue
        end = f"{name}^{{}}"
        if ask(edit.root, "cat-file", "-t", end) == "blob":
            text, _ = text_of(git(edit.root, "cat-file", "blob", end))
            yield OneFile(path=edit.path, text=text)
        elif int(ask(edit.root, "log", "-1", "--format=%ct", end) or edit.proposed_at) >= edit.proposed_at:
            yield CommitTree(edit.root, end)


def _tips(edit: FollowedEdit, repo: RepositoryPaths) -> Iterator[str]:
    """Yield the commits that have a name which HEAD does not contain, and of other work trees, newest first.

    The date of an annotated tag is that of its commit.
    """
    form = "--format=%(refname) %(objectname) %(committerdate:unix) %(*objectname) %(*committerdate:unix)"
    listed = ask(edit.root, "for-each-ref", "--no-merged=HEAD", form) or ""
    named = [words for words in map(str.split, listed.splitlines()) if not words[0].startswith(AUTOMATIC)]
    dated = [
        (int(at), commit) for *_, commit, at in named if at.isdigit() and int(at) >= int(edit.proposed_at)
    ]
    tips = dict.fromkeys(commit for _, commit in sorted(dated, key=lambda each: -each[0]))
    yield from list(tips)[:MOST_PLACES]
    detached = [head_of(other) for other in other_worktrees(repo)]
    yield from (commit for commit in detached if not commit.startswith("refs/") and commit not in tips)


def _in_another_repository(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether the lines are in a submodule that was added, or moved on, since the edit, or in a
    repository of its own below this one.
    """
    tree = WorkTree(edit.root)
    submodules = set(tree.submodules())
    changed = [path for path in tree.changed(edit.base) if path in submodules or path.endswith("/")]
    roots = [f"{repo.root}/{path.rstrip('/')}" for path in sorted(changed)[:MOST_PLACES]]
    inner = [root for root in roots if (found := find_repository(root)) and found.root == root]
    return edit.after is not None and any(holds(WorkTree(root)) for root in inner)


def _in_another_form(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether the lines are in a notebook or a patch of the work tree."""
    changed = WorkTree(edit.root).changed(edit.base)
    return _is_in(edit, [path for path in changed if is_wrapped(path)], holds)


def _among_ignored_files(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether the lines were moved to files that git ignores, or pasted there, since the edit.

    The copies that builds make are no such place.
    """
    own, found = PurePosixPath(edit.path), list[PurePosixPath]()
    for path in map(PurePosixPath, ignored(edit.root)):
        if BUILT.isdisjoint(path.parts) and _changed_at(f"{edit.root}/{path}") >= edit.proposed_at:
            found.append(path)
    found.sort(key=lambda path: (path.name != own.name, path.suffix != own.suffix, path))
    return _is_in(edit, [str(path) for path in found[:MOST_IGNORED]], holds)


def _is_in(edit: FollowedEdit, paths: list[str], holds: Holds) -> bool:
    adds = edit.after is not None and any(hunk.b1 < hunk.b2 for hunk in edit.hunks)
    return adds and bool(paths) and holds(ChosenFiles(edit, paths))


class ChosenFiles(WorkTree):
    """The work tree without the file of an edit, in which these files alone have changed."""

    def __init__(self, edit: FollowedEdit, paths: list[str]) -> None:
        super().__init__(edit.root)
        self._own, self._chosen = {edit.path, edit.first_path}, paths

    def read(self, path: str) -> tuple[str | None, str]:
        return (None, "missing") if path in self._own else super().read(path)

    def changed(self, base: str | None) -> list[str]:
        return self._chosen

    def renamed(self, base: str | None, path: str) -> str | None:
        return None


def _changed_at(path: str) -> float:
    """Return when a file was last written, moved or renamed; a file that is gone was never."""
    try:
        return os.lstat(path).st_ctime
    except OSError:
        return 0.0


def _brought(edit: FollowedEdit, began: str | None, parts: list[str], holds: Holds) -> bool:
    there = any(_holds_at(edit, part, holds) for part in parts)
    return there and not _holds_at(edit, began, holds)


def _holds_at(edit: FollowedEdit, commit: str | None, holds: Holds) -> bool:
    return commit is not None and holds(CommitTree(edit.root, commit))


def _commit(root: str, name: str) -> str | None:
    return ask(root, "rev-parse", "--verify", "--quiet", name)
