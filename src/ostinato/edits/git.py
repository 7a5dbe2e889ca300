"""Asking git, without disturbing the person who works there: no locks, no hooks, no programs of theirs."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ostinato.edits.capture.spool import content, text_of

TIMEOUT_S = 60.0
MOST_CANDIDATES = 300
"""Files looked into for lines that left theirs."""


class GitCommandError(Exception):
    """git failed, or there is no repository to work in; the message says what to do."""


def clean_environment() -> dict[str, str]:
    """Ours without what git tells its hooks: their index and folders are not those we ask about."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def git(root: str | Path, *arguments: str) -> bytes:
    """Output of one command. Raises GitCommandError with git's own words."""
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
    """As `git`, one stripped line; None when git says no."""
    try:
        return git(root, *arguments).decode(errors="surrogateescape").strip()
    except GitCommandError:
        return None


def head_commit(root: str | Path) -> str | None:
    """Id of the commit HEAD is at; None before the first."""
    return ask(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def contains(root: str | Path, commit: str, head: str) -> bool:
    """Whether `commit` is an ancestor of `head`, or it. A commit that is gone is not."""
    return ask(root, "merge-base", "--is-ancestor", commit, head) is not None


class FileTree(Protocol):
    """Files at one moment."""

    def read(self, path: str) -> tuple[str | None, str]:
        """Text, or None and why it cannot be followed."""
        ...

    def changed(self, base: str | None) -> list[str]:
        """Paths that differ from the commit `base`, new ones included."""
        ...

    def renamed(self, base: str | None, path: str) -> str | None:
        """What git says `path` of `base` is called here."""
        ...

    def at(self, base: str | None) -> "FileTree":
        """The same repository at the commit `base`; an empty tree for None."""
        ...


@dataclass(slots=True)
class WorkTree:
    """What lies in the folder now. Read once: an instance is one look."""

    root: str
    _seen: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    _bases: "dict[str, CommitTree]" = field(default_factory=dict)

    def read(self, path: str) -> tuple[str | None, str]:
        return _once(self._seen, path, lambda: content(os.path.join(self.root, path)))  # noqa: PTH118

    def changed(self, base: str | None) -> list[str]:
        new = _paths(self.root, "ls-files", "--others", "--exclude-standard", "-z")
        return _several(new + _differing(self.root, base))

    def renamed(self, base: str | None, path: str) -> str | None:
        return _renamed(self.root, path, base)

    def at(self, base: str | None) -> FileTree:
        return _at(self.root, base, self._bases)


@dataclass(slots=True)
class CommitTree:
    """What a commit holds."""

    root: str
    commit: str
    _seen: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    _bases: "dict[str, CommitTree]" = field(default_factory=dict)

    def read(self, path: str) -> tuple[str | None, str]:
        return _once(self._seen, path, lambda: self._read(path))

    def changed(self, base: str | None) -> list[str]:
        return _several(_differing(self.root, base, self.commit))

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
    """A text that was caught at its moment; nothing is known of other files."""

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
    """Paths of the work tree that differ from HEAD, new ones included, at most MOST_CANDIDATES."""
    fields = _paths(root, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z")
    return [field[3:] for field in fields][:MOST_CANDIDATES]


def _once(
    seen: dict[str, tuple[str | None, str]], path: str, read: Callable[[], tuple[str | None, str]]
) -> tuple[str | None, str]:
    if path not in seen:
        seen[path] = read()
    return seen[path]


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
    """The fields between NULs; none when git cannot say (the commit is gone)."""
    try:
        output = git(root, *arguments)
    except GitCommandError:
        return []
    return [field.decode(errors="surrogateescape") for field in output.split(b"\0") if field]


def _several(paths: list[str]) -> list[str]:
    return list(dict.fromkeys(paths))[:MOST_CANDIDATES]
