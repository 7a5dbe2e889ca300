"""Reading from git without disturbing the developer: no locks, no hooks, none of their helper programs."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ostinato.edits.capture.spool import content, text_of

TIMEOUT_S = 60.0
MOST_CANDIDATES = 300
"""Files that are searched for lines that left their own."""


class GitCommandError(Exception):
    """The error for a git command that failed; the message is git's own or says what to do."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables of a git hook, which name another index or
    folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return clean | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def git(root: str | Path, *arguments: str) -> bytes:
    """Return the output of one command. Raise GitCommandError with git's own message."""
    command = ["git", "-C", str(root), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, env=clean_environment(), timeout=TIMEOUT_S, input=b""
        )
    except FileNotFoundError:
        raise GitCommandError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitCommandError(f"git {arguments[0]} took longer than {TIMEOUT_S:.0f} s in {root}") from None
    if done.returncode:
        raise GitCommandError(done.stderr.decode(errors="replace").strip().removeprefix("fatal: "))
    return done.stdout


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
        """Return the text of a file; or None, and why it cannot be followed."""
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
    """The files of the work tree. Each is read once, so an instance shows one moment."""

    root: str
    _texts: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    _bases: "dict[str, CommitTree]" = field(default_factory=dict)

    def read(self, path: str) -> tuple[str | None, str]:
        return _once(self._texts, path, lambda: content(os.path.join(self.root, path)))  # noqa: PTH118

    def changed(self, base: str | None) -> list[str]:
        new = _paths(self.root, "ls-files", "--others", "--exclude-standard", "-z")
        return _candidates(new + _differing(self.root, base))

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
        return _candidates(_differing(self.root, base, self.commit))

    def renamed(self, base: str | None, path: str) -> str | None:
        return _renamed(self.root, path, base, self.commit)

    def at(self, base: str | None) -> FileTree:
        return _at(self.root, base, self._bases)

    def _read(self, path: str) -> tuple[str | None, str]:
        try:
            return text_of(git(self.root, "cat-file", "blob", f"{self.commit}:{path}"))
        except GitCommandError:
            return None, "missing"


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
    fields = _paths(root, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z")
    return [field[3:] for field in fields][:MOST_CANDIDATES]


def _once(
    texts: dict[str, tuple[str | None, str]], path: str, read: Callable[[], tuple[str | None, str]]
) -> tuple[str | None, str]:
    if path not in texts:
        texts[path] = read()
    return texts[path]


def _differing(root: str, *commits: str | None) -> list[str]:
    known = [commit for commit in commits if commit]
    if len(known) < len(commits):
        return (
            _paths(root, "ls-tree", "-r", "--name-only", "-z", known[0]) if known else _paths(root, *TRACKED)
        )
    return _paths(root, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", *known, "--")


TRACKED = ("ls-files", "-z")


def _renamed(root: str, path: str, *commits: str | None) -> str | None:
    if None in commits:
        return None
    known = [commit for commit in commits if commit]
    fields = _paths(root, "diff", "--name-status", "-M", "--diff-filter=R", "-z", *known, "--")
    moves = zip(fields[1::3], fields[2::3], strict=False)
    return next((new for old, new in moves if old == path), None)


def _paths(root: str, *arguments: str) -> list[str]:
    """Return the fields between NULs; none when git fails, as for a commit that no longer exists."""
    try:
        output = git(root, *arguments)
    except GitCommandError:
        return []
    return [field.decode(errors="surrogateescape") for field in output.split(b"\0") if field]


def _candidates(paths: list[str]) -> list[str]:
    return list(dict.fromkeys(paths))[:MOST_CANDIDATES]
