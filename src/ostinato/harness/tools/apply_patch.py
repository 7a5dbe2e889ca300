"""Patches in the V4A envelope: read strictly, matched exactly, applied to all files or to none.

::

    *** Begin Patch
    *** Update File: calc.py
    *** Move to: sums.py
    @@ def alpha(a, b):
    -    return a - b
    +    return a + b
    *** End Patch

A hunk's lines must stand in the file exactly, in the order of the hunks. `@@ line` moves to just after the
next such line; a hunk without one must fit in a single place. `*** End of File` ties a hunk to the end.
Newlines, a byte order mark and a missing last newline stay as the file has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment
from ostinato.harness.tools.edit import is_crlf

BEGIN, END = "*** Begin Patch", "*** End Patch"
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
ANCHOR = "@@"
BOM = "\ufeff"


class ChangeKind(StrEnum):
    ADD = "*** Add File: "
    DELETE = "*** Delete File: "
    UPDATE = "*** Update File: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A hunk: neighbouring lines of a file before and after.

    >>> Hunk(anchors=(), old=("a",), new=("b",)).at_end
    False
    """

    anchors: tuple[str, ...]
    """The lines that come before it, one after the other; the hunk is searched after the last."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of a patch to one file.

    >>> Change(kind=ChangeKind.DELETE, path="calc.py").hunks
    ()
    """

    kind: ChangeKind
    path: str
    move_to: str | None = None
    text: str = ""
    """The text of an added file."""
    hunks: tuple[Hunk, ...] = ()


def parse(patch: str) -> list[Change]:
    """Return the changes of a patch in order; raises InvalidArguments, which names the line."""
    lines = _Lines(patch)
    lines.expect(BEGIN)
    changes = []
    while (line := lines.next()) != END:
        kind = next((kind for kind in ChangeKind if line.startswith(kind)), None)
        if kind is None:
            raise lines.wrong(f"expected *** Add, Delete or Update File: or {END}")
        changes.append(_change(kind, lines.path(line, kind), lines))
    if not changes:
        raise lines.wrong("the patch changes nothing")
    lines.expect_nothing()
    return changes


def apply(text: str, hunks: Sequence[Hunk], path: str) -> str:
    """Return `text` after the hunks; raises UnexpectedEnvironment unless each fits in exactly one place."""
    bom, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    newline = "\r\n" if is_crlf(body) else "\n"
    ends = body.endswith(newline) or not body
    lines = body.removesuffix(newline).split(newline) if body else []
    changed = _applied(lines, hunks, path)
    return bom + newline.join(changed) + (newline if ends and changed else "")


def _applied(lines: list[str], hunks: Sequence[Hunk], path: str) -> list[str]:
    changed: list[str] = []
    done = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place(lines, hunk, done, f"{path}: hunk {number}")
        changed += [*lines[done:at], *hunk.new]
        done = at + len(hunk.old)
    return changed + lines[done:]


def _place(lines: Sequence[str], hunk: Hunk, start: int, name: str) -> int:
    """Return the index of the line where the hunk begins."""
    for anchor in hunk.anchors:
        start = _after(lines, anchor, start, name)
    if hunk.at_end:
        at = len(lines) - len(hunk.old)
        if at < start or tuple(lines[at:]) != hunk.old:
            raise UnexpectedEnvironment(f"{name} is not the end of the file")
        return at
    if not hunk.old:
        return start
    places = _places(lines, hunk.old, start)
    first = next(places, None)
    if first is None:
        raise UnexpectedEnvironment(f"{name} not found: {hunk.old[0].strip()}")
    if not hunk.anchors and next(places, None) is not None:
        raise UnexpectedEnvironment(f"{name} fits in several places: add lines or an @@ line")
    return first


def _after(lines: Sequence[str], anchor: str, start: int, name: str) -> int:
    """Return the index after the next line that is `anchor`, its indentation aside."""
    for i in range(start, len(lines)):
        if lines[i].strip() == anchor.strip():
            return i + 1
    raise UnexpectedEnvironment(f"{name} not found: @@ {anchor}")


def _places(lines: Sequence[str], old: Sequence[str], start: int) -> Iterator[int]:
    for at in range(start, len(lines) - len(old) + 1):
        if lines[at] == old[0] and tuple(lines[at : at + len(old)]) == tuple(old):
            yield at


class _Lines:
    """The lines of a patch, and the position of the reader."""

    def __init__(self, patch: str) -> None:
        text = patch.replace("\r\n", "\n") if is_crlf(patch) else patch
        self._lines = text.strip("\n").split("\n")
        self._at = 0

    def next(self) -> str:
        if self._at >= len(self._lines):
            raise InvalidArguments(f"the patch stops without {END}")
        self._at += 1
        return self._lines[self._at - 1]

    def peek(self) -> str:
        return self._lines[self._at] if self._at < len(self._lines) else END

    def expect(self, line: str) -> None:
        if self.next().strip() != line:
            raise self.wrong(f"expected {line}")

    def expect_nothing(self) -> None:
        if self._at < len(self._lines):
            self._at += 1
            raise self.wrong(f"text after {END}")

    def path(self, line: str, prefix: str) -> str:
        path = line.removeprefix(prefix).strip()
        if not path:
            raise self.wrong("a path is missing")
        return path

    def wrong(self, why: str) -> InvalidArguments:
        return InvalidArguments(f"patch line {self._at}: {why}")


def _change(kind: ChangeKind, path: str, lines: _Lines) -> Change:
    if kind is ChangeKind.DELETE:
        return Change(kind=kind, path=path)
    if kind is ChangeKind.ADD:
        return Change(kind=kind, path=path, text=_added(lines))
    move_to = lines.path(lines.next(), MOVE) if lines.peek().startswith(MOVE) else None
    hunks = tuple(_hunks(lines))
    if not hunks and move_to is None:
        raise lines.wrong(f"{path} has no hunk")
    return Change(kind=kind, path=path, move_to=move_to, hunks=hunks)


def _added(lines: _Lines) -> str:
    added = []
    while not _is_header(lines.peek()):
        line = lines.next()
        if not line.startswith("+"):
            raise lines.wrong("a line of a new file starts with +")
        added.append(line[1:] + "\n")
    return "".join(added)


def _hunks(lines: _Lines) -> Iterator[Hunk]:
    while not _is_header(lines.peek()):
        yield _hunk(lines)


def _hunk(lines: _Lines) -> Hunk:
    anchors = []
    while lines.peek().startswith(ANCHOR):
        anchors += [name] if (name := lines.next().removeprefix(ANCHOR).strip()) else []
    old: list[str] = []
    new: list[str] = []
    while not _is_header(lines.peek()) and not lines.peek().startswith((ANCHOR, END_OF_FILE)):
        _line(lines, old, new)
    at_end = lines.peek() == END_OF_FILE
    if at_end:
        lines.next()
    if not old and not new:
        raise lines.wrong("an empty hunk")
    if not old and not anchors and not at_end:
        raise lines.wrong(f"a hunk that only adds needs a line around it, @@ or {END_OF_FILE}")
    return Hunk(anchors=tuple(anchors), old=tuple(old), new=tuple(new), at_end=at_end)


def _line(lines: _Lines, old: list[str], new: list[str]) -> None:
    """Return one line of a hunk; an empty line is an empty line of context."""
    line = lines.next()
    mark, rest = line[:1], line[1:]
    if mark not in ("", " ", "-", "+"):
        raise lines.wrong("a line of a hunk starts with a space, - or +")
    if mark != "+":
        old.append(rest)
    if mark != "-":
        new.append(rest)


def _is_header(line: str) -> bool:
    return line == END or line.startswith(tuple(ChangeKind))
