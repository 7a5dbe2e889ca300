"""Reading from git without disturbing the developer: no locks, no hooks, none of their helper programs."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ostinato.edits.capture.spool import content, text_of
from ostinato.git import reason, run
from ostinato.git import where as where_in

TIMEOUT_S = 60.0
ALONE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
"""The options of a diff that starts no other program and enters no other repository."""
STAGED = "--cached"
"""The option of a diff that compares with the index."""
MOST_CANDIDATES = 300
"""Uncommitted files whose lines are counted when an edit is made."""
MISSING = ("does not exist", "exists on disk, but not in", "Not a valid object name", "bad file")
"""Git's words for an object that is not there; any other failure says nothing about it."""


class GitCommandError(Exception):
    """The error for a git command that failed; the message is git's own or says what to do."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables of a git hook, which name another index or
    folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return clean | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def git(root: str | Path, *arguments: str) -> bytes:
    """Return the output of one command. Raise GitCommandError with git's own message."""
    with _named_errors(root, arguments[0]):
        done = run(root, *arguments, base=clean_environment(), timeout_s=TIMEOUT_S)
        done.check_returncode()
        return done.stdout


def where(root: str | Path, question: str, *arguments: str) -> str:
    """Return what `git rev-parse` says about the place of a repository. Raise GitCommandError."""
    with _named_errors(root, "rev-parse"):
        found = where_in(root, question, *arguments, base=clean_environment(), timeout_s=TIMEOUT_S)
        return os.fsdecode(found).rstrip("\n")


@contextmanager
def _named_errors(root: str | Path, command: str) -> Iterator[None]:
    try:
        yield
    except subprocess.TimeoutExpired:
        raise GitCommandError(f"git {command} took longer than {TIMEOUT_S:.0f} s in {root}") from None
    except (subprocess.SubprocessError, FileNotFoundError) as error:
        raise GitCommandError(reason(error)) from None


def ask(root: str | Path, *arguments: str) -> str | None:
    """Return the output of one command, stripped; None when it fails."""
    try:
        return git(root, *arguments).decode(errors="surrogateescape").strip()
    except GitCommandError:
        return None


def head_commit(root: str | Path) -> str | None:
    """Return the id of HEAD's commit; None before the first commit."""
    return ask(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def contains(root: str | Path, commit: str, head: str) -> bool:
    """Return whether `commit` is `head` or an ancestor of it; False for a commit that no longer exists."""
    return ask(root, "merge-base", "--is-ancestor", commit, head) is not None


class FileTree(Protocol):
    """The files of a repository at one moment."""

    def read(self, path: str) -> tuple[str | None, str]:
        """Return the text of a file; or None, and why it cannot be followed. Raise GitCommandError."""
        ...

    def changed(self, base: str | None) -> list[str]:
        """Return the paths that differ from the commit `base`, new ones included."""
        ...

    def renamed(self, base: str | None, path: str) -> str | None:
        """Return the name here of the file that is `path` in `base`, if git detects a rename."""
        ...

    def at(self, base: str | None) -> "FileTree":
        """Return the same repository at the commit `base`; an empty tree for None."""
        ...


@dataclass(slots=True)
class WorkTree:
    """The files of the work tree. Each is read once, so an instance shows one moment.

    A file that sparse checkout leaves out is as the index has it, and a file of a submodule that is not
    checked out has the reason `submodule`.
    """

    root: str
    _texts: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    _bases: "dict[str, CommitTree]" = field(default_factory=dict)
    _index: dict[str, str] | None = None

    def read(self, path: str) -> tuple[str | None, str]:
        return _once(self._texts, path, lambda: self._read(path))

    def submodules(self) -> list[str]:
        """Return the paths of the submodules."""
        return [path for path, kind in self._hidden().items() if kind == "submodule"]

    def _read(self, path: str) -> tuple[str | None, str]:
        text, why = content(os.path.join(self.root, path))  # noqa: PTH118
        if why != "missing":
            return text, why
        if self._hidden().get(path) == "sparse":
            return text_of(git(self.root, "cat-file", "blob", f":{path}"))
        above = (path[:at] for at, character in enumerate(path) if character == "/")
        is_inside = any(self._hidden().get(folder) == "submodule" for folder in above)
        return None, "submodule" if is_inside else why

    def _hidden(self) -> dict[str, str]:
        """Return the files of the index that the work tree need not hold, as `sparse` or `submodule`."""
        if self._index is None:
            self._index = {}
            for entry in _paths(self.root, "ls-files", "-t", "--stage", "-z"):
                facts, _, path = entry.partition("\t")
                if facts[2:8] == "160000":
                    self._index[path] = "submodule"
                elif facts[0] == "S":
                    self._index[path] = "sparse"
        return self._index

    def changed(self, base: str | None) -> list[str]:
        new = _paths(self.root, "ls-files", "--others", "--exclude-standard", "-z")
        return list(dict.fromkeys(new + _differing(self.root, base)))

    def renamed(self, base: str | None, path: str) -> str | None:
        return _renamed(self.root, path, base)

    def at(self, base: str | None) -> FileTree:
        return _at(self.root, base, self._bases)


@dataclass(slots=True)
class CommitTree:
    """The files of a commit."""

    root: str
    commit: str
    _texts: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    _bases: "dict[str, CommitTree]" = field(default_factory=dict)

    def read(self, path: str) -> tuple[str | None, str]:
        return _once(self._texts, path, lambda: self._read(path))

    def changed(self, base: str | None) -> list[str]:
        return _differing(self.root, base, self.commit)

    def renamed(self, base: str | None, path: str) -> str | None:
        return _renamed(self.root, path, base, self.commit)

    def at(self, base: str | None) -> FileTree:
        return _at(self.root, base, self._bases)

    def _read(self, path: str) -> tuple[str | None, str]:
        try:
            return text_of(git(self.root, "cat-file", "blob", f"{self.commit}:{path}"))
        except GitCommandError as error:
            if any(words in str(error) for words in MISSING):
                return None, "missing"
            raise


class IndexTree(CommitTree):
    """The files of the index, as they are staged."""

    def __init__(self, root: str) -> None:
        super().__init__(root, "")

    def changed(self, base: str | None) -> list[str]:
        return _differing(self.root, base, STAGED)

    def renamed(self, base: str | None, path: str) -> str | None:
        return _renamed(self.root, path, base, STAGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFile:
    """The text of one file at an earlier moment; other files are unknown."""

    path: str
    text: str | None

    def read(self, path: str) -> tuple[str | None, str]:
        is_here = path == self.path and self.text is not None
        return (self.text, "") if is_here else (None, "missing")

    def changed(self, base: str | None) -> list[str]:
        return []

    def renamed(self, base: str | None, path: str) -> str | None:
        return None

    def at(self, base: str | None) -> FileTree:
        return OneFile(path="", text=None)


def _at(root: str, base: str | None, known: dict[str, CommitTree]) -> FileTree:
    if base is None:
        return OneFile(path="", text=None)
    return known.setdefault(base, CommitTree(root, base))


def dirty(root: str) -> list[str]:
    """Return the paths of the work tree that differ from HEAD, new ones included, at most MOST_CANDIDATES."""
    order = ("--porcelain", "--no-renames", "--ignore-submodules=dirty", "--untracked-files=all", "-z")
    fields = _paths(root, "status", *order)
    return [field[3:] for field in fields][:MOST_CANDIDATES]


def ignored(root: str) -> list[str]:
    """Return the paths of the files that git is told to ignore."""
    return _paths(root, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")


def _once(
    texts: dict[str, tuple[str | None, str]], path: str, read: Callable[[], tuple[str | None, str]]
) -> tuple[str | None, str]:
    if path not in texts:
        texts[path] = read()
    return texts[path]


def _differing(root: str, base: str | None, *now: str) -> list[str]:
    """Return the paths that differ between `base` and `now`, or the work tree; all where `base` is gone."""
    if base is not None and _exists(root, base):
        return _paths(root, "diff", "--name-only", "--no-renames", *ALONE, "-z", base, *now, "--")
    of_commit = now and now != (STAGED,)
    return _paths(root, *(("ls-tree", "-r", "--name-only", "-z", *now) if of_commit else ("ls-files", "-z")))


def _renamed(root: str, path: str, base: str | None, *now: str) -> str | None:
    if base is None or not _exists(root, base):
        return None
    fields = _paths(root, "diff", "--name-status", "-M", "--diff-filter=R", *ALONE, "-z", base, *now, "--")
    moves = zip(fields[1::3], fields[2::3], strict=False)
    return next((new for old, new in moves if old == path), None)


def _exists(root: str, commit: str) -> bool:
    """Return whether a commit is still there, after a rewriting of the history that removed the old one."""
    return ask(root, "cat-file", "-e", f"{commit}^{{commit}}") is not None


def _paths(root: str, *arguments: str) -> list[str]:
    """Return the fields between NULs. Raise GitCommandError."""
    output = git(root, *arguments)
    return [field.decode(errors="surrogateescape") for field in output.split(b"\0") if field]
