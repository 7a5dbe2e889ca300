"""Exact text replacement. Either the named region changes and no other byte does, or nothing is written."""

import difflib
import re

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment
from ostinato.harness.tools.contents import NEWLINE, is_crlf

EITHER = rf"(?:{NEWLINE.pattern})"
SEARCHED_LINES = 2_000
"""The most lines that are compared for the nearest region, since difflib takes about 10 µs a line."""
SHOWN_LINES = 3
SIMILAR = 0.6


def replace(text: str, old: str, new: str, *, replace_all: bool = False) -> str:
    """Return `text` with `old` replaced. An LF of `old` stands for either kind of newline, as the text is
    shown, and one of `new` becomes the kind that stands in its place.

    Raises InvalidArguments when `old` is empty or equals `new`, UnexpectedEnvironment when it is not found
    or, without `replace_all`, occurs more than once (overlapping occurrences count).
    """
    if not old:
        raise InvalidArguments("old_string is empty")
    if is_crlf(text):
        old, new = NEWLINE.sub("\r\n", old), NEWLINE.sub("\r\n", new)
    if old == new:
        raise InvalidArguments("old_string and new_string are identical")
    mixed = "\r\n" in text and not is_crlf(text) and "\r\n" not in old
    part = EITHER.join(map(re.escape, NEWLINE.split(old))) if mixed else re.escape(old)
    found = sum(1 for _ in re.finditer(f"(?={part})", text))
    if not found:
        raise UnexpectedEnvironment("old_string not found" + nearest(text, old))
    if found > 1 and not replace_all:
        raise UnexpectedEnvironment(f"old_string is not unique ({found})")
    if not mixed or "\r\n" in new:
        return re.sub(part, lambda _: new, text)
    return re.sub(part, lambda match: _as_in(match, new), text)


def _as_in(match: re.Match[str], new: str) -> str:
    """Return `new` with the newlines of the region it replaces; one more is like the region's last, or like
    the end of the line that the region is in.
    """
    after = NEWLINE.search(match.string, match.end())
    before = NEWLINE.findall(match.string, 0, match.start())
    ends = NEWLINE.findall(match[0]) or ([after[0]] if after else before[-1:])
    first, *lines = NEWLINE.split(new)
    return first + "".join(ends[min(i, len(ends) - 1)] + line for i, line in enumerate(lines))


def nearest(text: str, old: str) -> str:
    """Return `; nearest:` and the region most like `old`, at most three lines; empty without one."""
    wanted = [line.strip() for line in NEWLINE.split(old) if line.strip()]
    lines = NEWLINE.split(text)[:SEARCHED_LINES]
    if not wanted:
        return ""
    best = difflib.get_close_matches(wanted[0], [line.strip() for line in lines], n=1, cutoff=SIMILAR)
    if not best:
        return ""
    at = next(i for i, line in enumerate(lines) if line.strip() == best[0])
    region = lines[at : at + min(len(wanted), SHOWN_LINES)]
    return "; nearest:\n" + "\n".join(region)
