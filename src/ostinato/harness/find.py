"""Files by their names: shell patterns in which `**` crosses directories."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence

from ostinato.harness.errors import InvalidArguments

SKIPPED = {".git", "__pycache__", "node_modules", ".venv"}
"""Directories that hold nothing anybody wrote here."""
BRACES = re.compile(r"\{([^{}]*)\}")
MOST_ALTERNATIVES = 64


def matching(paths: Iterable[str], pattern: str, below: str = ".") -> Iterator[str]:
    """The paths that fit, in their order. A pattern without a slash is for the name alone, at any depth.

    Raises InvalidArguments for one with more alternatives than anybody means.

    >>> list(matching(["calc.py", "pkg/util.py", "notes.txt"], "*.py"))
    ['calc.py', 'pkg/util.py']
    """
    prefix = "" if below.rstrip("/") in (".", "") else below.removeprefix("./").rstrip("/") + "/"
    patterns = [_segments(each) for each in _expanded(pattern.removeprefix("./"))]
    for path in paths:
        parts = path.removeprefix(prefix).split("/")
        wanted = path.startswith(prefix) and not SKIPPED.intersection(parts[:-1])
        if wanted and any(_fits(parts, each) for each in patterns):
            yield path


def _expanded(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`."""
    patterns = [pattern]
    while any(BRACES.search(each) for each in patterns):
        patterns = [one for each in patterns for one in _alternatives(each)]
        if len(patterns) > MOST_ALTERNATIVES:
            raise InvalidArguments(f"the pattern has more than {MOST_ALTERNATIVES} alternatives")
    return patterns


def _alternatives(pattern: str) -> list[str]:
    found = BRACES.search(pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [before + choice + after for choice in found[1].split(",")]


def _segments(pattern: str) -> list[str]:
    return pattern.split("/") if "/" in pattern else ["**", pattern]


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path fit the segments of a pattern; `**` stands for any number of names."""
    ends = {0}  # how many names the segments so far may have used up
    for segment in pattern:
        if segment == "**":
            ends = set(range(min(ends), len(parts) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(parts) and fnmatch.fnmatchcase(parts[at], segment)}
    return len(parts) in ends
