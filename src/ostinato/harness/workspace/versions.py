"""The entry at each path of a tree, with the permissions and the folders that a tree of git leaves out."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = "./"
"""The path of the tree's own folder. Its permissions tell which ones its files usually have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """A file, a link or a folder at a checkpoint, with all its permissions. The path of a folder ends with a
    slash; it has no object.

    Where there is nothing, the mode is zeros. A folder that has files and the usual permissions follows from
    its files, so it counts as nothing.

    >>> FileVersion(mode="000000").missing, FileVersion(mode="040700").missing
    (True, False)
    """

    mode: str
    """The type and the permissions, six octal digits, as `stat` has them; a link's is git's."""
    object: str = ""

    @classmethod
    def of(cls, fact: str) -> Self:
        """Return the version of a fact of `Versions`."""
        mode, _, name = fact.partition(" ")
        return cls(mode=mode, object=name)

    @property
    def missing(self) -> bool:
        return self.mode == NOTHING

    @property
    def permissions(self) -> int:
        return int(self.mode, 8) & 0o7777


NOTHING = "000000"
Versions = Mapping[str, str]
"""The entry at each path, as the text `MODE OBJECT`, since a tree may have many thousands."""


def entries(rows: Iterable[bytes]) -> dict[str, str]:
    """Return the entries of `ls-files --stage -z` or `ls-tree -z`, with the modes that git knows."""
    found = {}
    for row in rows:
        facts, _, path = row.decode("utf-8", "surrogateescape").partition("\t")
        words = facts.split(" ")
        found[path] = f"{words[0]} {words[2] if len(words[1]) < 40 else words[1]}"
    return found


def seen(root: Path, staged: Versions, untracked: Iterable[str]) -> Versions:
    """Return the staged files with the permissions that they have, and the folders that do not follow from
    them: those of `untracked`, which have no file, and those with unusual permissions.
    """
    versions = {}
    for path, fact in staged.items():
        mode = mode_of(f"{root}/{path}") if fact.startswith("100") else fact
        # A file may have become something else since git looked.
        versions[path] = mode + fact[6:] if mode.startswith("10") else fact
    folders = {path.rpartition("/")[0] for path in staged if "/" in path}
    nearest = folders
    while nearest := {path.rpartition("/")[0] for path in nearest if "/" in path} - folders:
        folders |= nearest
    own = mode_of(str(root))
    usually = usual("040000", own)
    for folder in folders:
        if (mode := mode_of(f"{root}/{folder}")) != usually and mode.startswith("04"):
            versions[f"{folder}/"] = mode
    for path in untracked:
        if (mode := mode_of(f"{root}/{path}")).startswith("04"):
            versions[path] = mode
    return versions | {ROOT: own}


def folders_below(root: Path, tops: Iterable[str]) -> list[str]:
    """Return these folders and those within, but none of a nested repository."""
    found = []
    for top in tops:
        for place, below, names in os.walk(root / top):
            if ".git" in (*below, *names):
                below.clear()
            else:
                found.append(f"{os.path.relpath(place, root)}/")
    return found


def written(versions: Versions) -> bytes:
    """Return the modes that do not follow from a tree of git."""
    own = versions[ROOT]
    usually = {usual(mode, own) for mode in ("100644", "100755")}
    rows = (
        f"{fact[:6]} {path}\0"
        for path, fact in versions.items()
        if path.endswith("/") or (fact.startswith("10") and fact[:6] not in usually)
    )
    return os.fsencode("".join(sorted(rows)))


def read(staged: Versions, modes: bytes) -> Versions:
    """Return the versions whose modes were `written`, from the entries of their tree."""
    rows = (row.partition(" ") for row in os.fsdecode(modes).split("\0")[:-1])
    kept = {path: mode for mode, _, path in rows}
    usually = {mode: usual(mode, kept[ROOT]) for mode in {fact[:6] for fact in staged.values()}}
    files = {path: kept.get(path, usually[fact[:6]]) + fact[6:] for path, fact in staged.items()}
    return files | {path: mode for path, mode in kept.items() if path.endswith("/")}


def mode_of(path: str) -> str:
    """Return the mode of what stands at a path, zeros where nothing does."""
    try:
        return f"{os.lstat(path).st_mode:06o}"
    except OSError:
        return NOTHING


def usual(mode: str, root: str) -> str:
    """Return the mode that a file or folder usually has, where the tree's own folder has the mode `root`.

    >>> usual("100644", "040750")
    '100640'
    """
    shares = {"100644": 0o666, "100755": 0o777, "040000": 0o777}
    if mode not in shares:
        return mode
    return f"{int(mode, 8) & 0o170000 | int(root, 8) & shares[mode]:06o}"
