"""The diff in a tool call: the lines that a call takes away and the lines that it adds."""

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from ostinato.web.plain import shown

MOST_LINES = 400
"""The lines of one diff that a page shows."""
OLD = ("old_string", "old_str", "old", "search")
NEW = ("new_string", "new_str", "new", "replace")
WHOLE = ("content", "file_text", "contents")
PATCH = ("patch", "diff")
Line = tuple[str, str]
"""The sign of a line, which is `+`, `-`, ` ` or `@`, and its text."""


def of_call(arguments: Mapping[str, Any]) -> list[Line]:
    """Return the diff that a call proposes, by the names of its arguments; empty for a call that edits
    nothing."""
    old, new = _first(arguments, OLD), _first(arguments, NEW)
    if old is not None and new is not None:
        return between(old, new)
    if (patch := _first(arguments, PATCH)) is not None:
        return of_patch(patch)
    whole = _first(arguments, WHOLE)
    return [] if whole is None or "path" not in " ".join(arguments) else between("", whole)


def between(old: str, new: str) -> list[Line]:
    """Return the lines of both texts, the common ones once.

    >>> between("a\\nb", "a\\nc")
    [(' ', 'a'), ('-', 'b'), ('+', 'c')]
    """
    before, after = shown(old).text.splitlines()[:MOST_LINES], shown(new).text.splitlines()[:MOST_LINES]
    lines: list[Line] = []
    for kind, a1, a2, b1, b2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [(" ", line) for line in before[a1:a2]]
        else:
            lines += [("-", line) for line in before[a1:a2]] + [("+", line) for line in after[b1:b2]]
    return lines


def of_patch(patch: str) -> list[Line]:
    """Return the lines of a patch by their first characters."""
    return [_line(line) for line in shown(patch).text.splitlines()[:MOST_LINES]]


def _line(line: str) -> Line:
    if line.startswith(("@@", "***", "---", "+++", "diff ")):
        return "@", line
    return (line[0], line[1:]) if line[:1] in {"+", "-"} else (" ", line.removeprefix(" "))


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), str)), None)
