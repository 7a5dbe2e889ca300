"""Checkpoints: the files of a working tree before and after each call, in a private repository.

::

    call that may change files ─► tree before ─► call ─► tree after ─► edits ─► the session's log
                                                             └── undo brings the first back, file by file

That repository lies beside the sessions. Nothing is written to the person's own: no index, ref, object or
stash. Bytes are kept as they are, whatever filters and newline rules the repository has. Ignored files are
kept when a call names them.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ostinato.git import links_in
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.git import git
from ostinato.harness.permissions import patterns
from ostinato.harness.permissions.rules import Action, Rule, touched

RAW = "* -text -eol -filter -ident -working-tree-encoding\n"
OFF = ("advice.addEmbeddedRepo", "core.autocrlf", "core.safecrlf", "core.quotePath")
SETTINGS = tuple(word for name in OFF for word in ("-c", f"{name}=false"))
LINK, SUBMODULE = "120000", "160000"
MOST_EDITS = 200
"""The most files of one call whose content is shown; all of them can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """A file in a tree; the object is zeros where there is no file.

    >>> FileVersion(mode="000000", object="0" * 40).missing
    True
    """

    mode: str
    object: str

    @property
    def missing(self) -> bool:
        return not self.object.strip("0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of an undo."""

    restored: tuple[str, ...]
    left: tuple[str, ...]
    """The files that someone changed since the call; they stay as they are."""


def place_of(root: Path, home: Path) -> Path:
    """Return the private repository of a working tree's checkpoints, in a folder of its own below `home`."""
    return home / hashlib.sha256(str(root).encode()).hexdigest()[:16]


class Checkpoints:
    """The checkpoints of one working tree, made by `open`; the index belongs to this process alone."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root = root
        self._place = place
        self._index = place / f"index-{os.getpid()}-{id(self)}"

    @classmethod
    async def open(cls, root: Path, home: Path) -> "Checkpoints":
        """Open the checkpoints of a working tree in a folder of its own below `home`; raises GitError."""
        place = place_of(root, home)
        objects = await _path(root, "objects")
        if not (place / "HEAD").exists():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            await git(place, "init", "--quiet", "--bare", "--template=", ".")
        (place / "info").mkdir(exist_ok=True)
        (place / "info" / "attributes").write_text(RAW)
        exclude = await _path(root, "info/exclude")
        (place / "info" / "exclude").write_bytes(exclude.read_bytes() if exclude.exists() else b"")
        (place / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        checkpoints = cls(root, place)
        if (place / "index").exists():
            shutil.copyfile(place / "index", checkpoints._index)
        return checkpoints

    def close(self) -> None:
        """Close them. The index is kept, so that the next session reads only what has changed since."""
        if self._index.exists():
            self._index.replace(self._place / "index")

    async def take(self, paths: Iterable[str] = ()) -> str:
        """Return the id of the tree as it is now, with the ignored files among `paths`."""
        # Status 1: a nested repository without commits, or a file that cannot be read, is left out.
        if links := links_in(await self._git("ls-files", "--stage", "-z")):
            await self._git("update-index", "--force-remove", "-z", "--stdin", stdin=links)
        await self._git("add", "--all", "--ignore-errors", accepted=(0, 1))
        for path in paths:
            if (self.root / path).is_file() or (self.root / path).is_symlink():
                await self._git("add", "--force", "--", f":(literal){path}", accepted=(0, 1, 128))
        return (await self._git("write-tree")).decode().strip()

    async def diff(self, before: str, after: str) -> str:
        """Return the unified diff of two trees."""
        output = await self._git("diff", "--no-color", "--no-ext-diff", "--no-textconv", before, after)
        return output.decode(errors="replace")

    async def changed(self, before: str, after: str) -> dict[str, tuple[FileVersion, FileVersion]]:
        """Return the files that differ between two trees, without submodules."""
        raw = await self._git("diff-tree", "-r", "-z", "--no-renames", before, after)
        fields = raw.decode("utf-8", "surrogateescape").split("\0")
        rows = (field.lstrip(":").split() for field in fields[0:-1:2])
        found = {
            path: (FileVersion(mode=row[0], object=row[2]), FileVersion(mode=row[1], object=row[3]))
            for row, path in zip(rows, fields[1::2], strict=True)
        }
        return {path: pair for path, pair in found.items() if SUBMODULE not in {each.mode for each in pair}}

    async def before(self, call: Call) -> str | None:
        """Take a checkpoint before a call that may change files; None before any other."""
        paths = touched(call.tool, call.meant.arguments, root=str(self.root))
        return await self.take(paths) if call.tool == "bash" or paths else None

    async def after(self, call: Call, checkpoint: str) -> list[Edit]:
        tree = await self.take(touched(call.tool, call.meant.arguments, root=str(self.root)))
        changed = list((await self.changed(checkpoint, tree)).items())[:MOST_EDITS]
        return [await self._edit(path, *pair, trees=(checkpoint, tree)) for path, pair in changed]

    async def undo(self, before: str, after: str) -> Restored:
        """Restore the files that changed between two trees, where nobody has changed them since."""
        change = await self.changed(before, after)
        since = await self.changed(after, await self.take(change))
        restored = [path for path in change if path not in since]
        for path in restored:
            await self._put(path, change[path][0])
        return Restored(restored=tuple(restored), left=tuple(path for path in change if path in since))

    async def unkept(self) -> list[Rule]:
        """Return rules that keep edits out of repositories within this one: they cannot be put into a
        checkpoint.
        """
        await self.take()
        rows = (await self._git("ls-files", "--stage", "-z")).decode("utf-8", "surrogateescape").split("\0")
        paths = [row.partition("\t")[2] for row in rows if row.startswith(SUBMODULE)]
        return [
            Rule(tool="edit", pattern=f"{patterns.exactly(path)}/*", action=Action.DENY) for path in paths
        ]

    async def _edit(self, path: str, old: FileVersion, new: FileVersion, *, trees: tuple[str, str]) -> Edit:
        before, after = [None if each.missing else await self._content(each) for each in (old, new)]
        return Edit(path=path, before=before, after=after, trees=trees)

    async def _content(self, entry: FileVersion) -> bytes:
        return await self._git("cat-file", "blob", entry.object)

    async def _put(self, path: str, entry: FileVersion) -> None:
        target = self.root / path
        if target.is_symlink() or target.is_file():
            target.unlink()
        if entry.missing:
            _remove_empty(target.parent, self.root)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        content = await self._content(entry)
        if entry.mode == LINK:
            target.symlink_to(os.fsdecode(content))
            return
        target.write_bytes(content)
        if entry.mode == "100755":
            target.chmod(target.stat().st_mode | 0o111)

    async def _git(self, *arguments: str, stdin: bytes = b"", accepted: tuple[int, ...] = (0,)) -> bytes:
        environment = {
            "GIT_DIR": str(self._place),
            "GIT_WORK_TREE": str(self.root),
            "GIT_INDEX_FILE": str(self._index),
        }
        return await git(
            self.root, *SETTINGS, *arguments, environment=environment, stdin=stdin, accepted=accepted
        )


async def _path(root: Path, name: str) -> Path:
    found = (await git(root, "rev-parse", "--git-path", name)).decode().rstrip("\n")
    return (root / found).resolve()


def _remove_empty(directory: Path, root: Path) -> None:
    for parent in (directory, *directory.parents):
        if parent == root or not parent.is_dir() or any(parent.iterdir()):
            return
        parent.rmdir()
