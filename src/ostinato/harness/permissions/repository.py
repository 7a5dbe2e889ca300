"""The settings that git reads in a person's repository, and the programs that they name.

They are read anew for each call that is judged, since the agent, a branch or another program may have changed
them: the settings of the repository, of files that they include, of the repositories within that git enters,
and the hooks. `ostinato.git` has the list of settings that name no program; every other one is asked.
"""

import os
import posixpath
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ostinato.git import QUIET, Setting, nested, settings, start
from ostinato.harness.permissions.shell import WordPart
from ostinato.harness.tools import paths

LOOKING = {"status", "diff", "log"}
"""The subcommands that people let an agent run without being asked."""
NESTED = {"safe.bareRepository": "explicit", "core.fsmonitor": "false"}
QUIETED = {**NESTED, "core.hooksPath": os.devnull, "log.showSignature": "false"}
SEEN_HOOKS = {"post-index-change"}
"""The hooks that run while git looks."""
DRIVERS = ("filter.", "diff.", "merge.")
"""The settings whose programs run for the files that attributes choose."""
OF_PERSON = (".gitconfig", ".config/git/config", ".config/git/attributes")
PATIENCE_S = 10.0


def overriding(parts: Sequence[WordPart]) -> Mapping[str, str]:
    """Return the settings under which these commands run, so that git does not obey the repository's own.

    Where git only looks, no file system monitor and no hook is run, no signature is checked, and a bare
    repository among the files is not used. Where another git command stands beside it, hooks run, since
    people want the hooks of a commit.
    """
    programs = [[word.value for word in part.program[:2]] for part in parts]
    asked = {words[1] if len(words) > 1 else None for words in programs if words and words[0] == "git"}
    if asked.isdisjoint(LOOKING):
        return {}
    return QUIETED if asked <= LOOKING else NESTED


class Repository:
    """The repository at `root`, as git reads it at one moment; nothing is looked at where there is none."""

    def __init__(self, root: str) -> None:
        self._root = root if Path(root or "/nonexistent").is_dir() else ""

    def programs(self, folders: Collection[str], overridden: Mapping[str, str]) -> Iterator[str]:
        """Yield `key=value` for each setting, and each hook, by which git may run a program.

        `folders` lie within the root, and git is run in them. The settings `overridden` are not obeyed, but a
        repository within has its own.
        """
        if not self._root:
            return
        below = (paths.repository_below(folder, self._root) for folder in folders)
        tops = {os.path.join(self._root, place) for place in below if place}  # noqa: PTH118
        try:
            for top in tops - set(self._read):
                yield from self._named(top, settings(top, timeout_s=PATIENCE_S), {}, {})
            for top, found in self._read.items():
                yield from self._named(top, found, overridden if top == self._root else {}, overridden)
        except FileNotFoundError:
            return  # without git nothing reads them
        except subprocess.SubprocessError as error:
            yield f"settings that cannot be read: {_words(error)}"

    def reads(self, name: str) -> bool:
        """Return whether git reads a file within the root as settings, or runs it."""
        if not self._root:
            return False
        path = os.path.join(self._root, name)  # noqa: PTH118
        if _in_git_folder(self._root, name):
            return True
        try:
            return (
                path in self._files
                or any(path.startswith(f"{hooks}/") for hooks in self._hooks)
                or (posixpath.basename(name).casefold() == ".gitattributes" and self._drivers)
            )
        except FileNotFoundError:
            return False
        except subprocess.SubprocessError:
            return True

    @cached_property
    def _read(self) -> dict[str, list[Setting]]:
        """The settings of this repository and of those that git enters from it, by their folders."""
        tops = [self._root, *nested(self._root, timeout_s=PATIENCE_S)]
        return {top: settings(top, timeout_s=PATIENCE_S) for top in tops}

    @cached_property
    def _files(self) -> set[str]:
        """The real paths of the files that are read as settings, or that a setting names as a program."""
        home = Path(os.environ.get("HOME", "/"))
        found = {str(home / name) for name in OF_PERSON}
        for top, rows in self._read.items():
            for row in rows:
                found |= {row.origin, row.included}
                if row.key == "core.attributesfile":
                    found.add(str(Path(top) / os.path.expanduser(row.value)))  # noqa: PTH111
                if row.names_program:
                    words = (word.strip("!'\";()") for word in row.value.split())
                    found |= {os.path.join(top, word) for word in words if word}  # noqa: PTH118
        return {os.path.realpath(path) for path in found if path} - {os.path.realpath(self._root)}

    @cached_property
    def _hooks(self) -> set[str]:
        """The real paths of the folders of hooks that settings name."""
        rows = ((top, row) for top, found in self._read.items() for row in found)
        named = ((top, row.value) for top, row in rows if row.key == "core.hookspath" and row.value)
        return {os.path.realpath(Path(top) / os.path.expanduser(value)) for top, value in named}  # noqa: PTH111

    @cached_property
    def _drivers(self) -> bool:
        rows = (row for found in self._read.values() for row in found)
        return any(row.names_program and row.key.startswith(DRIVERS) for row in rows)

    def _named(
        self, top: str, found: Sequence[Setting], overridden: Mapping[str, str], looking: Mapping[str, str]
    ) -> Iterator[str]:
        where = "" if top == self._root else f" (in {posixpath.relpath(top, self._root)})"
        away = {key.lower() for key in overridden}
        for row in found:
            if row.names_program and row.key not in away:
                yield f"{row.key}={row.value}{where}"
        if "core.hookspath" not in away and not any(row.key == "core.hookspath" for row in found):
            for hook in _hooks(top):
                if hook in SEEN_HOOKS or "core.hooksPath" not in looking:
                    yield f"hooks/{hook}{where}"


def _hooks(top: str) -> Iterator[str]:
    """Yield the hooks of a repository."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | QUIET
    order = ("rev-parse", "--git-common-dir")
    done = start(top, *order, environment=environment, timeout_s=PATIENCE_S)
    if done.returncode:
        return  # it is no repository
    folder = Path(top, os.fsdecode(done.stdout.rstrip(b"\n")), "hooks")
    if folder.is_dir():
        yield from sorted(
            each.name for each in folder.iterdir() if each.suffix != ".sample" and os.access(each, os.X_OK)
        )


def _in_git_folder(root: str, name: str) -> bool:
    """Return whether a folder above the file is one of git's, or would be with the file."""
    folder = root
    for part in name.split("/"):
        try:
            entries = {entry.casefold() for entry in os.listdir(folder)}  # noqa: PTH208
        except OSError:
            return False
        entries.add(part.casefold())
        if "head" in entries and ("commondir" in entries or {"objects", "refs"} <= entries):
            return True
        folder = os.path.join(folder, part)  # noqa: PTH118
    return False


def _words(error: subprocess.SubprocessError) -> str:
    said = getattr(error, "stderr", None)
    return said.decode(errors="replace").strip() if said else str(error)
