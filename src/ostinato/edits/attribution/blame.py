"""The author of each line of a file: git names the commit, and the commit's traces and notes the author."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.edits.attribution import trace
from ostinato.edits.attribution.notes import read_note
from ostinato.edits.attribution.trace import Contributor, Range
from ostinato.edits.capture.repository_paths import RepositoryPaths, state_of
from ostinato.edits.git import git

HEADER = re.compile(r"([0-9a-f]{40,64}) (\d+) (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authored:
    """A line of a file and who wrote it.

    >>> Authored(line=1, commit="9f", contributor=Contributor.HUMAN, model="").line
    1
    """

    line: int
    commit: str
    contributor: Contributor
    model: str


def authors(repo: RepositoryPaths, path: str) -> list[Authored]:
    """Return the author of every line of `path` (relative to the work tree). Raise GitCommandError.

    A line without a record is `unknown` when its commit has no records at all, else `human`.
    """
    order = ("blame", "--no-textconv", "--porcelain", "-w", "-M", "-C", "--", path)
    output = git(repo.root, *order).decode(errors="replace")
    known = trace.read(Path(state_of(repo)) / trace.FILE) + trace.read(Path(repo.root) / trace.SHARED)
    notes: dict[str, list[Range]] = {}
    authored = []
    for commit, original, line, name in _lines(output, path):
        if commit not in notes:
            notes[commit] = read_note(repo.root, commit) + [r for r in known if r.revision == commit]
        hit = _latest(notes[commit], name, original)
        nobody = Contributor.HUMAN if notes[commit] else Contributor.UNKNOWN
        who, model = (hit.contributor, hit.model) if hit else (nobody, "")
        authored.append(Authored(line=line, commit=commit, contributor=who, model=model))
    return authored


def _latest(ranges: Sequence[Range], path: str, line: int) -> Range | None:
    return next((r for r in reversed(ranges) if r.path == path and r.start <= line <= r.end), None)


def _lines(output: str, path: str) -> list[tuple[str, int, int, str]]:
    """Return each line's commit, its number there, its number in the file now, and the file's name there."""
    headers: list[tuple[str, int, int]] = []
    names: dict[str, str] = {}
    for text in output.splitlines():
        header = HEADER.match(text)
        if header:
            headers.append((header[1], int(header[2]), int(header[3])))
        elif text.startswith("filename ") and headers:
            names[headers[-1][0]] = text.removeprefix("filename ")
    return [(commit, there, here, names.get(commit, path)) for commit, there, here in headers]
