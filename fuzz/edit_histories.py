"""Random histories of edits over real sources, and an exact reference for the fate of each edit.

The reference never searches text for a line. Every line is an object of its own that the history moves about,
so the lines an agent inserted and removed are known by identity, through commits, reverts, merges, renames,
moves and formatters. Each step is done twice: with a person's tools (an editor, git) in a real repository,
and on the objects. A step after which the texts differ (git merged differently, or refused) is undone on both
sides and counted, so that the two never drift apart.
"""

import io
import random
import re
import subprocess
import sysconfig
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from ostinato.edits.follow.edit import EditVerdict

CALL = re.compile(r"(\s+)([\w.]+ = |return )?([\w.]+)\(([\w.]+(?:, [\w.]+)+)\)\n")
"""A call on one line that a formatter may break up."""
QUOTED = re.compile(r"'([\w ]*)'")
FAR = 8
"""The number of lines between an agent's edit and a person's work elsewhere in the file."""
COMMON = (
    ["    return None\n"],
    ["        pass\n"],
    ["    if value is None:\n", "        return None\n"],
    ["    else:\n", "        continue\n"],
    ["    kwargs = dict(kwargs)\n"],
    ["\n", "    try:\n"],
)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One line, equal only to itself. Its text holds several once a formatter has broken it up."""

    text: str
    of: "Line | None" = None
    """The line as its author wrote it; None for the original itself."""
    changed: bool = False
    """Whether a person rewrote it."""

    @property
    def origin(self) -> "Line":
        return self.of or self


Files = dict[str, list[Line]]


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that an agent put in the place of others, and the line before them (None at the top)."""

    before: Line | None
    removed: tuple[Line, ...]
    inserted: tuple[Line, ...]

    @property
    def weight(self) -> int:
        """The number of characters without blanks."""
        sizes = [
            len("".join("".join(line.text for line in lines).split()))
            for lines in (self.removed, self.inserted)
        ]
        return max(*sizes, 1)


@dataclass(slots=True)
class Proposal:
    """An agent's edit."""

    path: str
    hunks: list[Hunk]
    at: float
    id: str = ""


@dataclass(slots=True)
class SkippedError(Exception):
    """The step is not possible here."""

    reason: str


def verdict(edit: Proposal, files: Files) -> EditVerdict:
    """Return the exact verdict on an edit, by the identity of its lines.

    Kept: every inserted line exists and no replaced one. Reverted: at most a tenth of the edit (by
    characters) is not as before it. Edited: anything between. An edit whose file was deleted is reverted.
    """
    present = {line.origin: line for lines in files.values() for line in lines}
    states = [(hunk.weight, _state(hunk, present)) for hunk in edit.hunks]
    if all(state is EditVerdict.KEPT for _, state in states):
        return EditVerdict.KEPT
    left = sum(weight for weight, state in states if state is not EditVerdict.REVERTED)
    return EditVerdict.REVERTED if left <= 0.1 * sum(weight for weight, _ in states) else EditVerdict.EDITED


def _state(hunk: Hunk, present: dict[Line, Line]) -> EditVerdict:
    lines = [present.get(line) for line in hunk.inserted]
    back = [line.origin in present for line in hunk.removed]
    file_deleted = hunk.before is not None and hunk.before.origin not in present
    if not any(lines) and file_deleted:
        return EditVerdict.REVERTED
    if not any(back) and all(line is not None and not line.changed for line in lines):
        return EditVerdict.KEPT
    return EditVerdict.REVERTED if not any(lines) and all(back) else EditVerdict.EDITED


def sources(rng: random.Random, n: int) -> list[list[str]]:
    """Return the lines of `n` different modules of the standard library, 60 to 400 lines each."""
    folder = Path(sysconfig.get_path("stdlib"))
    modules: list[list[str]] = []
    names = sorted(path for path in folder.glob("*.py"))
    while len(modules) < n:
        lines = rng.choice(names).read_text(errors="replace").splitlines(keepends=True)
        if len(lines) >= 60 and all(
            line.endswith("\n") and "\f" not in line and "\r" not in line for line in lines
        ):
            modules += [lines[:400]] if lines[:400] not in modules else []
    return modules


def propose(
    rng: random.Random, files: Files, path: str, *, at: float, donor: Sequence[str], busy: set[Line]
) -> Proposal | None:
    """Make an agent's edit of one file, one to four hunks, in `files`; `busy` lines are left alone.

    Return None when there is no room for one.
    """
    lines = files[path]
    places: list[int] = []
    for _ in range(60):
        place = rng.randrange(2, len(lines) - 10)
        around = lines[max(0, place - FAR) : place + 6 + FAR]
        if all(abs(place - other) > 6 + FAR for other in places) and not busy & {
            line.origin for line in around
        }:
            places.append(place)
        if len(places) == rng.choice((1, 1, 1, 2, 3, 4)):
            break
    hunks = [_hunk(rng, lines, place, donor) for place in sorted(places, reverse=True)]
    return Proposal(path=path, hunks=hunks, at=at) if hunks else None


def _hunk(rng: random.Random, lines: list[Line], place: int, donor: Sequence[str]) -> Hunk:
    kind = rng.choice(("common", "block", "replace", "delete"))
    size = rng.randrange(1, 6) if kind in {"replace", "delete"} else 0
    removed = tuple(lines[place : place + size])
    while kind in {"replace", "delete"} and sum(len(line.text.strip()) for line in removed) < 12:
        size += 1
        removed = tuple(lines[place : place + size])
    if kind == "common":
        texts = list(rng.choice(COMMON))
    elif kind == "block":
        texts = _block(rng, donor)
    elif kind == "replace":
        texts = [_rewritten(rng, line.text, number) for number, line in enumerate(removed)]
    else:
        texts = []
    inserted = tuple(Line(text) for text in texts)
    lines[place : place + size] = inserted
    return Hunk(before=lines[place - 1], removed=removed, inserted=inserted)


def _block(rng: random.Random, donor: Sequence[str]) -> list[str]:
    """Return a function that occurs in no file: a piece of another module under new names."""
    start = rng.randrange(len(donor) - 12)
    mark = f"{rng.randrange(10**6):06d}"
    body = [line for line in donor[start : start + rng.randrange(4, 9)] if line.strip() and '"""' not in line]
    results = [f"    result_{mark}_{n} = {line.strip()!r}\n" for n, line in enumerate(body)]
    return [f"def helper_{mark}(first, second):\n", *results, f"    return combine_{mark}(first, second)\n"]


def _rewritten(rng: random.Random, text: str, number: int) -> str:
    indent = text[: len(text) - len(text.lstrip())].rstrip("\n")
    return f"{indent}renewed_{rng.randrange(10**6):06d}_{number} = rebuilt(self_{number}, limit)\n"


def swap(files: Files, hunk: Hunk, *, undo: bool) -> None:
    """Undo or redo a hunk in its present place. Raises SkippedError when a person has changed it."""
    old, new = (hunk.inserted, hunk.removed) if undo else (hunk.removed, hunk.inserted)
    for lines in files.values():
        origins = [line.origin for line in lines]
        if old and old[0].origin in origins:
            at = origins.index(old[0].origin)
            if lines[at : at + len(old)] != list(old):
                raise SkippedError("the hunk was changed")
            lines[at : at + len(old)] = new
            return
        if not old and hunk.before is not None and hunk.before.origin in origins:
            if any(line.origin in origins for line in new):
                raise SkippedError("it is done already")
            at = origins.index(hunk.before.origin) + 1
            lines[at:at] = new
            return
    raise SkippedError("no line of the hunk is left")


def reformatted(files: Files, path: str, *, quotes: bool) -> None:
    """Break up calls and change quotes, as black does; strings of several lines stay as they are."""
    lines = files[path]
    inside = _inside_strings("".join(line.text for line in lines))
    number = 1
    for at, line in enumerate(lines):
        rows = line.text.count("\n")
        text = line.text
        if not inside & set(range(number, number + rows)):
            call = CALL.fullmatch(text)
            if call:
                indent, start, name, inner = call.groups()
                arguments = "".join(f"{indent}    {argument},\n" for argument in inner.split(", "))
                text = f"{indent}{start or ''}{name}(\n{arguments}{indent})\n"
            if quotes and '"' not in text and "#" not in text:
                text = QUOTED.sub(r'"\1"', text)
        number += rows
        lines[at] = line if text == line.text else replace(line, text=text, of=line.origin)


def respaced(files: Files, path: str) -> None:
    """Put two blanks around every assignment sign."""
    lines = files[path]
    inside = _inside_strings("".join(line.text for line in lines))
    number = 1
    for at, line in enumerate(lines):
        rows = range(number, number := number + line.text.count("\n"))
        if not inside & set(rows) and not {"'", '"'} & set(line.text):
            lines[at] = replace(line, text=line.text.replace(" = ", "  =  "), of=line.origin)


def _inside_strings(text: str) -> set[int]:
    """Return the numbers of lines inside strings of several lines; all lines for unreadable text."""
    numbers: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING and token.start[0] != token.end[0]:
                numbers |= set(range(token.start[0], token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        return set(range(1, text.count("\n") + 2))
    return numbers


@dataclass(slots=True)
class Repository:
    """A real repository, and the objects that stand for its lines."""

    root: Path
    rng: random.Random
    files: Files = field(default_factory=dict)
    commits: dict[str, Files] = field(default_factory=dict)
    edits: list[Proposal] = field(default_factory=list)
    crlf: set[str] = field(default_factory=set)
    names: Iterator[int] = field(default_factory=count)
    skipped: int = 0

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.root), *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SkippedError(f"git {arguments[0]}: {done.stderr.strip()[:200]}")
        return done.stdout.strip()

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    @property
    def is_clean(self) -> bool:
        return not self.git("status", "--porcelain")

    def text(self, path: str) -> str:
        text = "".join(line.text for line in self.files[path])
        return text.replace("\n", "\r\n") if path in self.crlf else text

    def save(self) -> None:
        """Write the files that differ, as an editor does."""
        for path in self.files:
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists() or file.read_bytes() != self.text(path).encode():
                file.write_bytes(self.text(path).encode())
        for file in self.root.rglob("*.py"):
            if str(file.relative_to(self.root)) not in self.files:
                file.unlink()

    def agrees(self) -> bool:
        on_disk = {str(file.relative_to(self.root)): file.read_bytes() for file in self.root.rglob("*.py")}
        return on_disk == {path: self.text(path).encode() for path in self.files}

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        self.commits[self.head] = copied(self.files)

    def busy(self) -> set[Line]:
        """Return the lines of edits, the lines before them and the lines they replaced."""
        lines: set[Line] = set()
        for edit in self.edits:
            for hunk in edit.hunks:
                lines |= {line.origin for line in (*hunk.removed, *hunk.inserted)}
                lines |= {hunk.before.origin} if hunk.before else set()
        return lines

    def quiet_place(self, path: str, *, far: int = FAR) -> int:
        """Return a place in a file that is far from every edit."""
        lines, busy = self.files[path], self.busy()
        for _ in range(40):
            place = self.rng.randrange(1, len(lines))
            if not busy & {line.origin for line in lines[max(0, place - far) : place + far]}:
                return place
        raise SkippedError("no quiet place")

    def attempt(self, step: "Callable[[Repository], None]") -> bool:
        """Do a step whole or not at all; return whether it was done."""
        before, crlf, head, branch = (
            copied(self.files),
            set(self.crlf),
            self.head,
            self.git("branch", "--show-current"),
        )
        try:
            step(self)
            if not self.agrees():
                raise SkippedError("git merged differently")
        except SkippedError:
            self.skipped += 1
            for kind in ("revert", "cherry-pick", "rebase", "merge"):
                subprocess.run(
                    ["git", "-C", str(self.root), kind, "--abort"], capture_output=True, check=False
                )
            self.git("checkout", "-q", "-f", branch)
            self.git("reset", "-q", "--hard", head)
            self.files, self.crlf = before, crlf
            self.save()
            assert self.agrees(), "a step could not be undone"
            return False
        return True


def copied(files: Files) -> Files:
    return {path: list(lines) for path, lines in files.items()}
