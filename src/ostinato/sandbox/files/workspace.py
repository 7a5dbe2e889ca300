"""The repository of a sandbox as its agent sees it, with all that was written to it."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from ostinato.sandbox.files import layer, overlay, rootfs, tree

REPO_AREA, TMP_AREA = "repo", "tmp"
Stamp = tuple[int, int, int]


class Workspace(Protocol):
    """The operations on a repository that an agent needs."""

    root: str

    def open_up(self) -> None:
        """Give the owner, which the agent is, access that a command may have taken away: `chmod 0 .`."""
        ...

    def pure(self) -> bool:
        """Return True when nothing but files of the tree can have changed since the start."""
        ...

    def changes(self, most: int) -> dict[str, bytes | None]:
        """Return the changes (see `Sandbox`); raises ChangesError when they have more than `most` bytes."""
        ...

    def pack(self) -> Iterator[bytes]:
        """Yield all that was written, as a layer."""
        ...


class OverlayWorkspace:
    """An overlay mounted at `root`; `lower` and `upper` are open directories of its layers."""

    root = rootfs.REPO

    def __init__(self, lower: int, upper: int) -> None:
        self._lower = f"/proc/self/fd/{lower}"
        self._upper = f"/proc/self/fd/{upper}"

    def open_up(self) -> None:
        tree.open_up(rootfs.REPO)
        tree.open_up(rootfs.TMP)

    def pure(self) -> bool:
        return overlay.pure(self._upper, rootfs.TMP)

    def changes(self, most: int) -> dict[str, bytes | None]:
        return overlay.changes(self._lower, self._upper, most)

    def pack(self) -> Iterator[bytes]:
        return layer.pack({REPO_AREA: self._upper, TMP_AREA: rootfs.TMP})


class DirectoryWorkspace:
    """Any directory; files that differ from `base`, by default their state now, count as written.

    With `git`, `.git` is compared too, which packing needs.
    """

    def __init__(self, root: str, *, git: bool = True, base: Mapping[str, Stamp] | None = None) -> None:
        self.root = root
        self._git = git
        self.base = self._stamps() if base is None else base

    def open_up(self) -> None:
        tree.open_up(self.root)

    def pure(self) -> bool:
        return False  # it may have written anywhere

    def changes(self, most: int) -> dict[str, bytes | None]:
        touched = self._touched(self._stamps(), git=False)
        changes = tree.bounded(((path, tree.content(self.root, path)) for path in touched), most)
        return {path: data for path, data in changes.items() if data is not None or path in self.base}

    def pack(self) -> Iterator[bytes]:
        now = self._stamps()
        touched = self._touched(now, git=True)
        return layer.pack_paths(
            REPO_AREA,
            self.root,
            [path for path in touched if path in now],
            [path for path in touched if path not in now],
        )

    def _touched(self, now: dict[str, Stamp], *, git: bool) -> list[str]:
        paths = (path for path in now.keys() | self.base.keys() if now.get(path) != self.base.get(path))
        return sorted(path for path in paths if git or not f"{path}/".startswith(f"{tree.GIT}/"))

    def _stamps(self) -> dict[str, Stamp]:
        start = len(self.root) + 1
        entries = tree.walk(self.root, git=self._git)
        stats = ((entry.path[start:], entry.stat(follow_symlinks=False)) for entry in entries)
        return {path: (s.st_ino, s.st_size, s.st_ctime_ns) for path, s in stats}


def state(workspace: Workspace, *, alone: bool) -> dict[str, Any]:
    """Return what decides whether a result may be remembered; `alone`: no other command is under way."""
    return {"tree": tree.digest(workspace.root), "pure": alone and workspace.pure()}
