"""The tree of a person while files are put back: nothing passes through a link, nothing private is open."""

import os
import stat
import tempfile
from pathlib import Path

from ostinato.harness.workspace.versions import ROOT, FileVersion, Versions, usual


class Restoring:
    """A tree at `root` that goes back to what it was at `before`.

    Folders get their permissions last, by `finish`: until then only this user may enter them.
    """

    def __init__(self, root: Path, before: Versions) -> None:
        self._root = root
        self._before = before
        self._modes: dict[Path, int] = {}

    def clear(self, path: str, old: FileVersion) -> None:
        """Remove what was not there, a folder only when it is empty. Make a folder that stays one to work
        in.
        """
        above = [self._root / each for each in Path(f"{path}x").parents]
        target = self._root / path
        if any(each.is_symlink() or not each.is_dir() for each in above if each != self._root):
            return
        if old.missing and not path.endswith("/"):
            target.unlink(missing_ok=True)
        if old.missing:
            self._remove_empty(target if path.endswith("/") else target.parent)
        if path.endswith("/") and target.is_dir():
            target.chmod(target.stat().st_mode & 0o7777 | 0o700)
            self._modes[target] = self._mode(target)

    def folder(self, path: str) -> bool:
        """Make a folder; return False where something else stands in the way."""
        return self._make(self._root / path)

    def file(self, path: str, old: FileVersion, content: bytes) -> bool:
        """Put a file or a link back; return False where something else stands in the way.

        It is made in a folder that nobody else may enter and gets its permissions before it moves to its
        place.
        """
        target = self._root / path
        if not self._make(target.parent) or (target.is_dir() and not target.is_symlink()):
            return False
        with tempfile.TemporaryDirectory(prefix=".ostinato-", dir=target.parent) as private:
            made = Path(private) / "made"
            if stat.S_ISLNK(int(old.mode, 8)):
                made.symlink_to(os.fsdecode(content))
            else:
                made.touch(0o600)
                made.write_bytes(content)
                made.chmod(old.permissions)
            made.replace(target)
        return True

    def finish(self) -> None:
        """Give the folders their permissions."""
        for folder in sorted(self._modes, reverse=True):
            folder.chmod(self._modes[folder])

    def _make(self, folder: Path) -> bool:
        if folder == self._root:
            return True
        if folder.is_symlink() or not self._make(folder.parent):
            return False
        if not folder.exists():
            folder.mkdir(0o700)
            self._modes[folder] = self._mode(folder)
        return folder.is_dir()

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder and those above it, as far as they are empty and were not there before."""
        for each in (folder, *folder.parents):
            if each == self._root or each.is_symlink() or not each.is_dir():
                return
            if f"{each.relative_to(self._root)}/" in self._before or any(each.iterdir()):
                return
            each.rmdir()
            self._modes.pop(each, None)

    def _mode(self, folder: Path) -> int:
        path = ROOT if folder == self._root else f"{folder.relative_to(self._root)}/"
        fact = self._before.get(path, usual("040000", self._before[ROOT]))
        return FileVersion.of(fact).permissions
