"""The names of a file that rules look at: the written one, and the real one on the machine's disk.

A link, `..`, doubled slashes or a disk that ignores case gives a file another name. A call is allowed when
both names are, and denied when one is.
"""

import os
import posixpath

from ostinato.sandbox.files import tree


def inside(path: str, root: str) -> str:
    """Return the path as rules see it: relative to the repository when it lies within, `..` resolved.

    Every spelling that a disk may take for `.git` becomes `.git`.
    """
    path = f"/{path.lstrip('/')}" if path.startswith("/") else path
    if root and (path == root or path.startswith(root + "/")):
        path = posixpath.relpath(path, root)
    return "/".join(tree.GIT if tree.is_git(name) else name for name in posixpath.normpath(path).split("/"))


def names(path: str, root: str, place: str = ".") -> tuple[str, ...]:
    """Return the name as written in the directory `place`, and the real one where it differs.

    Without a `root` the disk is not looked at.
    """
    written = inside(path if path.startswith("/") else posixpath.join(place, path), root)
    if not root or "\0" in path:
        return (written,)
    top = os.path.realpath(root)
    real = tree.spelled(os.path.realpath(os.path.join(root, place, path)))  # noqa: PTH118
    return tuple(dict.fromkeys((written, inside(real, top))))


def repository_below(place: str, root: str) -> str | None:
    """Return the repository, other than the root's, that git would find when run in `place`; else None."""
    place = names(place, root)[-1]
    while root and place not in {".", "", "/"}:
        found = {entry.casefold() for entry in _listed(os.path.join(root, place))}  # noqa: PTH118
        if tree.GIT in found or {"head", "objects"} <= found or "commondir" in found:
            return place
        place = posixpath.dirname(place)
    return None


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []  # there is no such directory, so `cd` will fail
