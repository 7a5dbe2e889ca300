"""Exact text replacement. Either the named region changes and no other byte does, or nothing is written."""

import difflib
import re

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment

NEWLINE = re.compile("\r?\n")
SEARCHED_LINES = 2_000
"""The most lines that are compared for the nearest region, since difflib takes about 10 µs a line."""
SHOWN_LINES = 3
SIMILAR = 0.6


def decode(data: bytes, path: str) -> str:
    """Return the text of a file, newlines untouched; raises UnexpectedEnvironment when it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnexpectedEnvironment(f"{path} is not UTF-8 text") from None


def is_crlf(text: str) -> bool:
    """Return whether every newline is CRLF and there is at least one."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def replace(text: str, old: str, new: str, *, replace_all: bool = False) -> str:
    """Return `text` with `old` replaced. A file with CRLF newlines is matched in CRLF and keeps them.

    Raises InvalidArguments when `old` is empty or equals `new`, UnexpectedEnvironment when it is not found
    or, without `replace_all`, occurs more than once (overlapping occurrences count).
    """
    if not old:
        raise InvalidArguments("old_string is empty")
    if is_crlf(text):
        old, new = NEWLINE.sub("\r\n", old), NEWLINE.sub("\r\n", new)
    if old == new:
        raise InvalidArguments("old_string and new_string are identical")
    found = occurrences(text, old)
    if not found:
        raise UnexpectedEnvironment("old_string not found" + nearest(text, old))
    if found > 1 and not replace_all:
        raise UnexpectedEnvironment(f"old_string is not unique ({found})")
    return text.replace(old, new)


def occurrences(text: str, part: str) -> int:
    """Count the occurrences of `part`, overlaps included: `aa` occurs twice in `aaa`."""
    count, at = 0, text.find(part)
    while at >= 0:
        count, at = count + 1, text.find(part, at + 1)
    return count


def nearest(text: str, old: str) -> str:
    """Return `; nearest:` and the region most like `old`, at most three lines; empty without one."""
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    lines = text.splitlines()[:SEARCHED_LINES]
    if not wanted:
        return ""
    best = difflib.get_close_matches(wanted[0], [line.strip() for line in lines], n=1, cutoff=SIMILAR)
    if not best:
        return ""
    at = next(i for i, line in enumerate(lines) if line.strip() == best[0])
    region = lines[at : at + min(len(wanted), SHOWN_LINES)]
    return "; nearest:\n" + "\n".join(region)
