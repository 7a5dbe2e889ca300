"""The patterns of rules: `*` is any text, `?` any character, a backslash takes the next one literally.

A shape is a text in which `UNKNOWN` stands for any text at all, which only the shell knows. A pattern
*matches* a shape when it matches every text that the shape may become, and *meets* it when it matches one of
them.
"""

import re
from functools import cache

from ostinato.harness.permissions.shell import UNKNOWN

_ANY, _ONE = object(), object()
LONGEST = 2_000


def exactly(text: str) -> str:
    """Return the pattern that matches this text and nothing else."""
    return re.sub(r"([\\*?])", r"\\\1", text)


def is_exact(pattern: str) -> bool:
    """Return whether the pattern matches one text only."""
    return all(isinstance(token, str) for token in _tokens(pattern))


def matches(pattern: str, shape: str) -> bool:
    """Return whether it matches every text that `shape` may become. A final ` *` also matches nothing."""
    return any(_regex(each).fullmatch(shape) is not None for each in _readings(pattern))


def occurs(pattern: str, text: str) -> bool:
    """Return whether the pattern without a final ` *` stands anywhere in `text` as whole words."""
    stretches, at = _stretches(_tokens(_readings(pattern)[-1])), 0
    for number, stretch in enumerate(stretches):
        begins = r"(?<![\w-])" if number == 0 and stretch else ""
        ends = r"(?![\w-])" if number == len(stretches) - 1 and stretch else ""
        found = re.compile(f"{begins}{stretch}{ends}", re.DOTALL).search(text, at)
        if found is None:
            return False
        at = found.end()  # the first place suffices, since any text may follow
    return True


def meets(pattern: str, shape: str) -> bool:
    """Return whether `shape` may become a text that the pattern matches; true above LONGEST."""
    if UNKNOWN not in shape:
        return matches(pattern, shape)
    if len(shape) > LONGEST:
        return True
    wanted = [_ANY if char == UNKNOWN else char for char in shape]
    return any(_meet(_tokens(each), wanted) for each in _readings(pattern))


def _readings(pattern: str) -> list[str]:
    """Return the pattern, and what is left without a final ` *` whose blank is not escaped."""
    ends = re.fullmatch(r"((?:\\.|[^\\])*) \*", pattern, re.DOTALL)
    return [pattern] if ends is None else [pattern, ends[1]]


def _meet(one: tuple[object, ...], other: list[object]) -> bool:
    """Return whether two sequences of characters, `_ONE` and `_ANY` have a text in common."""
    ends = {0}
    for token in one:
        ends = _skip(ends, other)
        if token is _ANY:
            ends = set(range(min(ends), len(other) + 1)) if ends else ends
        else:
            ends = {
                at + (other[at] is not _ANY) for at in ends if at < len(other) and _fits(token, other[at])
            }
    return len(other) in _skip(ends, other)


def _skip(ends: set[int], other: list[object]) -> set[int]:
    """Return the places that are reached when each `_ANY` becomes nothing."""
    reached, waiting = set(ends), list(ends)
    while waiting:
        at = waiting.pop()
        if at < len(other) and other[at] is _ANY and at + 1 not in reached:
            reached.add(at + 1)
            waiting.append(at + 1)
    return reached


def _fits(token: object, char: object) -> bool:
    return token is _ONE or char is _ANY or token == char


@cache
def _tokens(pattern: str) -> tuple[object, ...]:
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    return tuple({"*": _ANY, "?": _ONE}.get(piece, piece[-1]) for piece in pieces)


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(_source(_tokens(pattern)), re.DOTALL)


def _source(tokens: tuple[object, ...]) -> str:
    """Return a regular expression whose time is at most the length of the text for each `*`.

    A stretch between two `*` may be matched where it first occurs, so each stretch is atomic.
    """
    first, *more = _stretches(tokens)
    if not more:
        return first
    between = "".join(f"(?>.*?{stretch})" for stretch in more[:-1] if stretch)
    return f"{first}{between}.*{more[-1]}"


def _stretches(tokens: tuple[object, ...]) -> list[str]:
    """Return the regular expressions of the stretches before, between and after each `*`."""
    stretches = [""]
    for token in tokens:
        if token is _ANY:
            stretches.append("")
        else:
            stretches[-1] += f"[^{UNKNOWN}]" if token is _ONE else re.escape(str(token))
    return stretches
