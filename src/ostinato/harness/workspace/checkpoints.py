"""Checkpoints: the files of a working tree before and after each call, in a private repository.

::

    call that may change files ─► tree before ─► call ─► tree after ─► edits ─► the session's log
                                                             └── undo brings the first back, file by file

That repository lies beside the sessions. Nothing is written to the person's own: no index, ref, object or
stash. Bytes are kept as they are, whatever filters and newline rules the repository has. Ignored files are
kept when a call names them. A tree of git knows neither the permissions of a file nor an empty folder, so a
checkpoint is two ids, `TREE-MODES`: the second names a file with what git leaves out.
"""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ostinato.git import links_in
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.git import GitError, git, locate
from ostinato.harness.permissions import patterns
from ostinato.harness.permissions.rules import Action, Rule, touched
from ostinato.harness.tools.find import SKIPPED
from ostinato.harness.workspace.restoring import Restoring
from ostinato.harness.workspace.versions import (
    NOTHING,
    FileVersion,
    Versions,
    entries,
    folders_below,
    read,
    seen,
    written,
)

RAW = "* -text -eol -filter -ident -working-tree-encoding\n"
OFF = ("advice.addEmbeddedRepo", "core.autocrlf", "core.safecrlf", "core.quotePath")
SETTINGS = tuple(word for name in OFF for word in ("-c", f"{name}=false"))
SUBMODULE = "160000"
STAGED = re.compile(rb"\d{6} [0-9a-f]+ \d\t.*[^/]", re.DOTALL)
MOST_EDITS = 200
"""The most files of one call whose content is shown; all of them can be undone."""
KNOWN = 4
"""The newest checkpoints whose versions are held, so that they are not read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of an undo."""

    restored: tuple[str, ...]
    left: tuple[str, ...]
    """The files that someone changed since the call; they stay as they are."""
    unsaved: tuple[str, ...] = ()
    """The files that no checkpoint has and that were written since the request; they stay as they are."""


def place_of(root: Path, home: Path) -> Path:
    """Return the private repository of a working tree's checkpoints, in a folder of its own below `home`."""
    return home / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def tree_of(checkpoint: str) -> str:
    """Return the id of git's tree, which is the first part of a checkpoint.

    >>> tree_of("9f-1a")
    '9f'
    """
    return checkpoint.partition("-")[0]


class Checkpoints:
    """The checkpoints of one working tree, made by `open`; the index belongs to this process alone."""

    def __init__(self, root: Path, place: Path, *, borrowed: bool = False) -> None:
        self.root = root
        self._place = place
        self._borrowed = borrowed
        self._index = place / f"index-{os.getpid()}-{id(self)}"
        self._known: dict[str, Versions] = {}

    @classmethod
    async def open(cls, root: Path, home: Path) -> "Checkpoints":
        """Open the checkpoints of a working tree in a folder of its own below `home`; raises GitError."""
        place = place_of(root, home)
        objects = await _path(root, "objects")
        if not (place / "HEAD").exists():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            await git(place, "init", "--quiet", "--bare", "--template=", ".", own={})
        (place / "info").mkdir(exist_ok=True)
        (place / "modes").mkdir(exist_ok=True)
        (place / "info" / "attributes").write_text(RAW)
        exclude = await _path(root, "info/exclude")
        (place / "info" / "exclude").write_bytes(exclude.read_bytes() if exclude.exists() else b"")
        (place / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
        checkpoints = cls(root, place)
        if (place / "index").exists():
            shutil.copyfile(place / "index", checkpoints._index)
        return checkpoints

    def of_copy(self, root: Path) -> "Checkpoints":
        """Return the checkpoints of a copy of this tree, in the same private repository: either side can be
        compared with, and restored to, a checkpoint of the other."""
        return Checkpoints(root, self._place, borrowed=True)

    def close(self) -> None:
        """Close them. The index is kept, so that the next session reads only what has changed since; that of
        a copy is not."""
        if self._borrowed:
            self._index.unlink(missing_ok=True)
        elif self._index.exists():
            self._index.replace(self._place / "index")

    async def fill(self, checkpoint: str) -> None:
        """Write the files of a checkpoint into this tree, which has none yet."""
        await self._git("read-tree", tree_of(checkpoint))
        await self._git("checkout-index", "--all", "--force")
        found = await self.take()
        if found != checkpoint:  # unusual permissions, empty folders
            await self.undo(checkpoint, found)

    async def take(self, paths: Iterable[str] = ()) -> str:
        """Return the id of a checkpoint of the files as they are now, with the ignored ones among `paths`."""
        # Status 1: a nested repository without commits, or a file that cannot be read, is left out.
        if links := links_in(await self._git("ls-files", "--stage", "-z")):
            await self._git("update-index", "--force-remove", "-z", "--stdin", stdin=links)
        await self._git("add", "--all", "--ignore-errors", accepted=(0, 1))
        for path in paths:
            if (self.root / path).is_file() or (self.root / path).is_symlink():
                await self._git("add", "--force", "--", f":(literal){path}", accepted=(0, 1, 128))
        shown = ("--stage", "--others", "--directory", "--exclude-standard")
        rows = (await self._git("ls-files", *shown, "-z")).split(b"\0")[:-1]
        tree = (await self._git("write-tree")).decode().strip()
        # Of what is not staged, folders are listed: those without a file that is kept.
        folders = folders_below(self.root, [os.fsdecode(row) for row in rows if row.endswith(b"/")])
        asked = b"".join(os.fsencode(folder) + b"\0" for folder in folders)
        accepted = (0, 1)  # 1: git ignores none of them
        ignored = (
            await self._git("check-ignore", "-z", "--stdin", stdin=asked, accepted=accepted) if asked else b""
        )
        untracked = {*folders} - {os.fsdecode(row) for row in ignored.split(b"\0")}
        versions = seen(self.root, entries(filter(STAGED.match, rows)), untracked)
        checkpoint = f"{tree}-{self._keep(written(versions))}"
        self._known = dict([*self._known.items(), (checkpoint, versions)][-KNOWN:])
        return checkpoint

    async def diff(self, before: str, after: str) -> str:
        """Return the unified diff of two checkpoints."""
        trees = map(tree_of, (before, after))
        output = await self._git("diff", "--no-color", "--no-ext-diff", "--no-textconv", *trees)
        return output.decode(errors="replace")

    async def changed(self, before: str, after: str) -> dict[str, tuple[FileVersion, FileVersion]]:
        """Return the files, links and folders that differ between two checkpoints, without submodules."""
        old, new = await self._versions(before), await self._versions(after)
        differing = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
        pairs = {
            path: (FileVersion.of(old.get(path, NOTHING)), FileVersion.of(new.get(path, NOTHING)))
            for path in differing
        }
        return {path: pair for path, pair in pairs.items() if SUBMODULE not in {each.mode for each in pair}}

    async def before(self, call: Call) -> str | None:
        """Take a checkpoint before a call that may change files; None before any other."""
        paths = touched(call.tool, call.meant.arguments, root=str(self.root))
        return await self.take(paths) if call.tool == "bash" or paths else None

    async def after(self, call: Call, checkpoint: str) -> list[Edit]:
        tree = await self.take(touched(call.tool, call.meant.arguments, root=str(self.root)))
        return await self.edits(checkpoint, tree)

    async def edits(self, before: str, after: str) -> list[Edit]:
        """Return what differs between two checkpoints, with the content of the first MOST_EDITS files."""
        changed = list((await self.changed(before, after)).items())[:MOST_EDITS]
        return [await self._edit(path, *pair, trees=(before, after)) for path, pair in changed]

    async def undo(self, before: str, after: str) -> Restored:
        """Restore what changed between two checkpoints, where nobody has changed it since."""
        change = await self.changed(before, after)
        since = await self.changed(after, await self.take(change))
        mine = {path: old for path, (old, _) in change.items() if path not in since}
        tree = Restoring(self.root, await self._versions(before))
        for path in sorted(mine, reverse=True):  # the content of a folder before the folder
            tree.clear(path, mine[path])
        left = [path for path in change if path in since]
        for path, old in mine.items():
            if old.missing:
                continue
            content = None if path.endswith("/") else await self._content(old)
            done = tree.folder(path) if content is None else tree.file(path, old, content)
            left += [] if done else [path]
        tree.finish()
        return Restored(restored=tuple(path for path in change if path not in left), left=tuple(left))

    async def unsaved_since(self, at: float) -> tuple[str, ...]:
        """Return the files that no checkpoint keeps and that were written since `at`: those that git ignores,
        and those of repositories within this one.

        What nobody writes by hand, as in `__pycache__`, is not among them.
        """
        listed = await self._git("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
        paths = [os.fsdecode(row) for row in listed.split(b"\0")[:-1]]
        paths = [path for path in paths if not {*SKIPPED}.intersection(path.split("/"))]
        paths += await asyncio.to_thread(lambda: list(_in_repositories_below(self.root)))
        return tuple(path for path in sorted({*paths}) if _written_at(self.root / path) >= at)

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
        before, after = [await self._content(each) if each.object else None for each in (old, new)]
        return Edit(path=path, before=before, after=after, trees=trees)

    async def _content(self, entry: FileVersion) -> bytes:
        return await self._git("cat-file", "blob", entry.object)

    async def _versions(self, checkpoint: str) -> Versions:
        """Return what a checkpoint has at each path; raises GitError for one that is gone."""
        if checkpoint in self._known:
            return self._known[checkpoint]
        modes = self._place / "modes" / (checkpoint.partition("-")[2] or "none")
        if not modes.exists():
            raise GitError(f"the permissions of checkpoint {checkpoint} are not in {modes.parent}: it stays")
        listed = await self._git("ls-tree", "-r", "-z", tree_of(checkpoint))
        return read(entries(listed.split(b"\0")[:-1]), modes.read_bytes())

    def _keep(self, modes: bytes) -> str:
        """Keep the modes of a checkpoint in a file, and return its name."""
        name = hashlib.sha256(modes).hexdigest()[:40]
        kept = self._place / "modes" / name
        if not kept.exists():
            made = self._index.with_suffix(".modes")
            made.write_bytes(modes)
            made.replace(kept)
        return name

    async def _git(self, *arguments: str, stdin: bytes = b"", accepted: tuple[int, ...] = (0,)) -> bytes:
        environment = {
            "GIT_DIR": str(self._place),
            "GIT_WORK_TREE": str(self.root),
            "GIT_INDEX_FILE": str(self._index),
        }
        return await git(self.root, *SETTINGS, *arguments, own=environment, stdin=stdin, accepted=accepted)


def _in_repositories_below(root: Path) -> Iterator[str]:
    """Yield the files of the repositories and work trees that lie within another, relative to its root."""
    inner: list[str] = []
    for folder, below, names in os.walk(root):
        here = f"{os.path.relpath(folder, root)}/"
        if here != "./" and ".git" in {*below, *names}:
            inner.append(here)
        below[:] = [name for name in below if name not in SKIPPED]
        if here.startswith(tuple(inner)):
            yield from (here + name for name in names if name != ".git")


def _written_at(path: Path) -> float:
    """Return when a file was last written or moved; a file that is gone was never."""
    try:
        return path.lstat().st_ctime
    except OSError:
        return 0.0


async def _path(root: Path, name: str) -> Path:
    return (root / await locate(root, "--git-path", name)).resolve()
