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
Each line keeps its newline, and a new one gets that of the line whose place it takes; a missing last newline
stays missing, unless the last line becomes a blank one, which is nothing but its newline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment
from ostinato.harness.tools.contents import is_crlf
from ostinato.harness.tools.names import meant

BEGIN, END = "*** Begin Patch", "*** End Patch"
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
ANCHOR = "@@"


class ChangeKind(StrEnum):
    ADD = "*** Add File: "
    DELETE = "*** Delete File: "
    UPDATE = "*** Update File: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A hunk: neighbouring lines of a file before and after.

    >>> Hunk(anchors=(), lines=(("-", "a"), ("+", "b"))).old
    ('a',)
    """

    anchors: tuple[str, ...]
    """The lines that come before it, one after the other; the hunk is searched after the last."""
    lines: tuple[tuple[str, str], ...]
    """Each line behind its mark: a space, `-` or `+`."""
    at_end: bool = False

    @property
    def old(self) -> tuple[str, ...]:
        return tuple(line for mark, line in self.lines if mark != "+")


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
    lines = text.split("\n")
    usual = "\r" if is_crlf(text) or (len(lines) > 1 and lines[-2].endswith("\r")) else ""
    closed = lines[-1] == ""
    if closed:
        lines.pop()
    elif usual:
        lines[-1] += usual
    changed = _applied(lines, hunks, path)
    if closed or not changed or changed[-1] in ("", usual):
        return "".join(line + "\n" for line in changed)
    return "\n".join([*changed[:-1], changed[-1].removesuffix(usual)])


def _applied(lines: list[str], hunks: Sequence[Hunk], path: str) -> list[str]:
    """Return the lines, with the CR that ends some of them, after the hunks."""
    changed: list[str] = []
    done = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place(lines, hunk, done, f"{path}: hunk {number}")
        changed += lines[done:at]
        done = at + len(hunk.old)
        changed += _put(lines, hunk, at)
    return changed + lines[done:]


def _put(lines: Sequence[str], hunk: Hunk, at: int) -> Iterator[str]:
    """Yield the new lines of a hunk that stands at line `at`. An added line ends like the removed line whose
    place it takes, or else like the line before it.
    """
    removed: list[str] = []
    beside = lines[at - 1 : at] or lines[at : at + 1]
    for mark, text in hunk.lines:
        if mark == "+":
            like = removed.pop(0) if removed else (beside or [""])[0]
            beside = [like]
            end, own = (line[len(line.rstrip("\r")) :] for line in (like, text))
            yield text if len(own) >= len(end) else text.rstrip("\r") + end
            continue
        if mark == "-":
            removed.append(lines[at])
        else:
            removed.clear()
            yield lines[at]
        beside = [lines[at]]
        at += 1


def _place(lines: Sequence[str], hunk: Hunk, start: int, name: str) -> int:
    """Return the index of the line where the hunk begins."""
    for anchor in hunk.anchors:
        start = _after(lines, anchor, start, name)
    old = hunk.old
    if hunk.at_end:
        at = len(lines) - len(old)
        if at < start or not _stands(lines, old, at):
            raise UnexpectedEnvironment(f"{name} is not the end of the file")
        return at
    if not old:
        return start
    places = (at for at in range(start, len(lines) - len(old) + 1) if _stands(lines, old, at))
    first = next(places, None)
    if first is None:
        raise UnexpectedEnvironment(f"{name} not found: {old[0].strip()}")
    if not hunk.anchors and next(places, None) is not None:
        raise UnexpectedEnvironment(f"{name} fits in several places: add lines or an @@ line")
    return first


def _after(lines: Sequence[str], anchor: str, start: int, name: str) -> int:
    """Return the index after the next line that is `anchor`, its indentation aside."""
    for i in range(start, len(lines)):
        if lines[i].strip() == anchor.strip():
            return i + 1
    raise UnexpectedEnvironment(f"{name} not found: @@ {anchor}")


def _stands(lines: Sequence[str], old: Sequence[str], at: int) -> bool:
    """Return whether the lines stand at `at`, with or without the CR that ends them in the file."""
    found = lines[at : at + len(old)]
    return all(line in (there, there.removesuffix("\r")) for line, there in zip(old, found, strict=True))


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
        return meant(path)

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
    body = []
    while not _is_header(lines.peek()) and not lines.peek().startswith((ANCHOR, END_OF_FILE)):
        body.append(_line(lines))
    at_end = lines.peek() == END_OF_FILE
    if at_end:
        lines.next()
    hunk = Hunk(anchors=tuple(anchors), lines=tuple(body), at_end=at_end)
    if not body:
        raise lines.wrong("an empty hunk")
    if not hunk.old and not anchors and not at_end:
        raise lines.wrong(f"a hunk that only adds needs a line around it, @@ or {END_OF_FILE}")
    return hunk


def _line(lines: _Lines) -> tuple[str, str]:
    """Return the mark and the text of one line of a hunk; an empty line is an empty line of context."""
    line = lines.next()
    mark = line[:1]
    if mark not in ("", " ", "-", "+"):
        raise lines.wrong("a line of a hunk starts with a space, - or +")
    return mark or " ", line[1:]


def _is_header(line: str) -> bool:
    return line == END or line.startswith(tuple(ChangeKind))
