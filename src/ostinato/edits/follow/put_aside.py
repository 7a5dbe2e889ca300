"""The places in which git keeps lines that the work tree lacks: they were put aside, not taken back.

A place counts only if it brought the lines: it holds them, and the commit that it began from does not. So a
stash of other work, made while the edit was committed, is no reason to doubt a later revert of that commit.
"""

from collections.abc import Callable, Iterator

from ostinato.edits.capture.repository_paths import (
    RepositoryPaths,
    find_repository,
    head_of,
    other_worktrees,
    stashes_of,
)
from ostinato.edits.follow.edit import FollowedEdit
from ostinato.edits.git import CommitTree, FileTree, WorkTree, ask, contains, head_commit

MOST_PLACES = 10
"""The newest stashes, the newest branches and the work trees that are searched."""
Holds = Callable[[FileTree], bool]


def put_aside(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> str:
    """Return where the lines of an edit are kept that the work tree lacks; empty where they are nowhere.

    `holds` says whether a tree holds the edit. Raise GitCommandError.
    """
    places = {
        "stashed": _in_a_stash,
        "other_worktree": _in_another_worktree,
        "other_branch": _on_another_branch,
        "submodule": _in_a_submodule,
    }
    return next((reason for reason, looks in places.items() if looks(edit, repo, holds)), "")


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
    for other in other_worktrees(repo)[:MOST_PLACES]:
        if holds(WorkTree(other.root)) and not _holds_at(edit, head_commit(other.root), holds):
            return True
    return False


def _on_another_branch(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether a branch that HEAD does not contain brought the lines since the edit was made.

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
    return False


def _tips(edit: FollowedEdit, repo: RepositoryPaths) -> Iterator[str]:
    """Yield the commits of branches, here and of remotes, and of other work trees, newest first."""
    form = "--format=%(objectname) %(committerdate:unix)"
    kinds = ("refs/heads", "refs/remotes", "refs/tags")
    listed = ask(edit.root, "for-each-ref", "--no-merged=HEAD", "--sort=-committerdate", form, *kinds) or ""
    tips = dict.fromkeys(
        commit
        for commit, _, at in (line.partition(" ") for line in listed.splitlines())
        if at.isdigit() and int(at) >= int(edit.proposed_at)
    )
    yield from list(tips)[:MOST_PLACES]
    detached = [head_of(other) for other in other_worktrees(repo)]
    yield from (commit for commit in detached if not commit.startswith("refs/") and commit not in tips)


def _in_a_submodule(edit: FollowedEdit, repo: RepositoryPaths, holds: Holds) -> bool:
    """Return whether the lines are in a submodule that was added, or moved on, since the edit."""
    tree = WorkTree(edit.root)
    changed = set(tree.changed(edit.base)) & set(tree.submodules())
    roots = [f"{repo.root}/{path}" for path in sorted(changed)[:MOST_PLACES]]
    inner = [root for root in roots if (found := find_repository(root)) and found.root == root]
    return edit.after is not None and any(holds(WorkTree(root)) for root in inner)


def _brought(edit: FollowedEdit, began: str | None, parts: list[str], holds: Holds) -> bool:
    there = any(_holds_at(edit, part, holds) for part in parts)
    return there and not _holds_at(edit, began, holds)


def _holds_at(edit: FollowedEdit, commit: str | None, holds: Holds) -> bool:
    return commit is not None and holds(CommitTree(edit.root, commit))


def _commit(root: str, name: str) -> str | None:
    return ask(root, "rev-parse", "--verify", "--quiet", name)
