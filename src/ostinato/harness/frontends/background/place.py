"""A copy of a person's files in which a task works, so that neither meets the other's edits.

::

    the person's files, as they are ─► copy: same commit, same files, objects borrowed ─► the agent's work
                ▲                                                                             │
                └─────────── take: every file, if nobody has changed it since ◄───────────────┘

The copy is a repository of its own. Nothing is written to the person's before `take`.
"""

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from ostinato.harness.git import git, locate
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.harness.workspace.versions import ROOT


async def copy_files(checkpoints: Checkpoints, first: str, place: Path) -> None:
    """Make a copy at `place` of the tree of `checkpoints` as it was at `first`.

    It has the same commit checked out, and what was not committed is not committed there either. Files that
    git ignores, and those of submodules, are not in it. Raises GitError, OSError.
    """
    root = checkpoints.root
    await git(root, "init", "--quiet", "--template=", str(place), own={})
    objects = await locate(root, "--path-format=absolute", "--git-path", "objects")
    shallow = await locate(root, "--path-format=absolute", "--git-path", "shallow")
    _borrow(place / ".git", objects, Path(shallow))
    branch = await git(root, "symbolic-ref", "--quiet", "HEAD", accepted=(0, 1))
    commit = (await git(root, "rev-parse", "--quiet", "--verify", "HEAD", accepted=(0, 1, 128))).strip()
    if branch:
        await git(place, "symbolic-ref", "HEAD", os.fsdecode(branch.strip()), own={})
    if commit:
        await git(place, "update-ref", "HEAD", commit.decode(), own={})
        await git(place, "read-tree", "HEAD", own={})
    copied = checkpoints.of_copy(place)
    try:
        await copied.fill(first)
    finally:
        copied.close()


def _borrow(own: Path, objects: str, shallow: Path) -> None:
    """Let a git directory read the objects of another one, which may lack the oldest commits."""
    (own / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    if shallow.exists():
        shutil.copyfile(shallow, own / "shallow")


async def changed_in(checkpoints: Checkpoints, first: str) -> tuple[str, ...]:
    """Return the files of a tree that differ from a checkpoint."""
    found = await checkpoints.changed(first, await checkpoints.take())
    return tuple(path for path in found if path != ROOT)


async def take_files(checkpoints: Checkpoints, first: str, place: Path) -> tuple[str, Sequence[str]]:
    """Put the changes of a copy into the person's tree, all or none.

    Return the checkpoint of the copy, and the files that somebody changed here too: with any, nothing was
    written.
    """
    copied = checkpoints.of_copy(place)
    try:
        last = await copied.take()
    finally:
        copied.close()
    ours = await checkpoints.changed(first, last)
    now = await checkpoints.take(ours)
    differing = (await checkpoints.changed(now, last)).keys()
    theirs = (await checkpoints.changed(first, now)).keys() & differing
    both = _meeting(ours.keys() - {ROOT}, theirs - {ROOT})
    if not both:
        await checkpoints.undo(last, first)
    return last, both


def _meeting(ours: Collection[str], theirs: Collection[str]) -> list[str]:
    """Return those of our paths that are theirs too, or lie above or below one that is a file.

    >>> _meeting(["a/b", "c", "d"], ["a", "c/e", "d"])
    ['a/b', 'c', 'd']
    """
    files = {path for path in theirs if not path.endswith("/")}
    above = {folder for path in theirs for folder in _folders(path)}
    return sorted(each for each in ours if each in theirs or each in above or files & _folders(each))


def _folders(path: str) -> set[str]:
    return {str(folder) for folder in Path(path).parents} - {"."}
