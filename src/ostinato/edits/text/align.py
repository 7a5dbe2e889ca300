"""Alignment of two texts: their changed blocks, and the region of the second that corresponds to one of the
first.

Lines that occur once in both are anchors (patience); between anchors difflib decides. A region whose border
falls into a rewritten block is followed word by word inside that block.
"""

import bisect
import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ostinato.edits.text.tokens import key, tokens

MOST_PAIRS = 1_000_000
"""The largest product of two lengths that difflib compares: about a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines [a1, a2) of one text became lines [b1, b2) of the other.

    >>> Block(a1=0, a2=1, b1=0, b2=2).b2
    2
    """

    a1: int
    a2: int
    b1: int
    b2: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Lines [start, end), without the first `skip` and the last `drop` of their words."""

    start: int
    end: int
    skip: int = 0
    drop: int = 0

    def words(self, lines: Sequence[str]) -> list[str]:
        words = tokens(lines[self.start : self.end])
        return words[self.skip : len(words) - self.drop]


def split(text: str) -> list[str]:
    """Split into lines, which keep their ends; only a newline ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def blocks(a: Sequence[str], b: Sequence[str], by: Callable[[str], str] = key) -> list[Block]:
    """Return the changed blocks, in order; the lines between them have equal keys."""
    keys_a, keys_b = [by(line) for line in a], [by(line) for line in b]
    changed: list[Block] = []
    todo = [Block(a1=0, a2=len(a), b1=0, b2=len(b))]
    while todo:
        rest = _trim(keys_a, keys_b, todo.pop())
        anchors = _anchors(keys_a, keys_b, rest)
        if anchors:
            todo.extend(reversed(_gaps(anchors, rest)))
        else:
            changed.extend(_by_difflib(keys_a, keys_b, rest))
    return _joined(changed)


def follow(changes: Sequence[Block], a: Sequence[str], b: Sequence[str], start: int, end: int) -> Region:
    """Return the region of `b` that corresponds to lines [start, end) of `a`.

    Lines inserted beside the region are not part of it. For an empty region, whose lines were deleted, it is
    the text that was put back in their place.
    """
    if start == end:
        touching = [c for c in changes if c.a1 <= start <= c.a2]
        if touching:
            return Region(start=touching[0].b1, end=touching[-1].b2)
        at = start + _shift(changes, start)
        return Region(start=at, end=at)
    first, skip = _border(changes, a, b, start, is_start=True)
    last, drop = _border(changes, a, b, end, is_start=False)
    return Region(start=first, end=max(first, last), skip=skip, drop=drop)


def _shift(changes: Sequence[Block], at: int) -> int:
    return next((c.b2 - c.a2 for c in reversed(changes) if c.a2 <= at), 0)


def _border(
    changes: Sequence[Block], a: Sequence[str], b: Sequence[str], at: int, *, is_start: bool
) -> tuple[int, int]:
    """Return the line of `b` at the border `at` of `a`, and how many words of that block lie beyond it."""
    inside = next((c for c in changes if c.a1 < at < c.a2), None)
    if inside:
        return _inside(inside, a, b, at, is_start=is_start)
    if is_start:
        return at + _shift(changes, at), 0
    before = [c for c in changes if c.a1 < at]
    return at + (before[-1].b2 - before[-1].a2 if before else 0), 0


def _inside(block: Block, a: Sequence[str], b: Sequence[str], at: int, *, is_start: bool) -> tuple[int, int]:
    old, new = tokens(a[block.a1 : block.a2]), tokens(b[block.b1 : block.b2])
    border = len(tokens(a[block.a1 : at]))
    at_word = _word(old, new, border, is_start=is_start)
    return (block.b1, at_word) if is_start else (block.b2, len(new) - at_word)


def _word(old: Sequence[str], new: Sequence[str], border: int, *, is_start: bool) -> int:
    """Return the index in `new` of a border between two words of `old`."""
    if len(old) * len(new) > MOST_PAIRS:
        return 0 if is_start else len(new)
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for tag, i1, i2, j1, j2 in codes if is_start else reversed(codes):
        if is_start and border < i2:
            return j1 + (border - i1 if tag == "equal" else 0) if border >= i1 else j1
        if not is_start and border > i1:
            return j1 + border - i1 if tag == "equal" and border < i2 else j2
    return len(new) if is_start else 0


def _trim(x: list[str], y: list[str], part: Block) -> Block:
    """Return the part without the equal lines at both ends."""
    a1, a2, b1, b2 = part.a1, part.a2, part.b1, part.b2
    while a1 < a2 and b1 < b2 and x[a1] == y[b1]:
        a1, b1 = a1 + 1, b1 + 1
    while a1 < a2 and b1 < b2 and x[a2 - 1] == y[b2 - 1]:
        a2, b2 = a2 - 1, b2 - 1
    return Block(a1=a1, a2=a2, b1=b1, b2=b2)


def _anchors(x: list[str], y: list[str], part: Block) -> list[tuple[int, int]]:
    """Return the longest series, in the order of both texts, of keys that occur once in each."""
    lines, others = range(part.a1, part.a2), range(part.b1, part.b2)
    once, once_there = Counter(x[i] for i in lines), Counter(y[j] for j in others)
    where = {y[j]: j for j in others if once_there[y[j]] == 1}
    return _rising([(i, where[x[i]]) for i in lines if x[i] and once[x[i]] == 1 and x[i] in where])


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence that rises in the second number too."""
    tails: list[int] = []
    ends: list[int] = []
    came_from: list[int] = []
    for at, (_, j) in enumerate(pairs):
        place = bisect.bisect_left(tails, j)
        came_from.append(ends[place - 1] if place else -1)
        tails[place : place + 1], ends[place : place + 1] = [j], [at]
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chain.append(pairs[at])
        at = came_from[at]
    return chain[::-1]


def _gaps(anchors: Sequence[tuple[int, int]], part: Block) -> list[Block]:
    """Return the blocks before, between and after the anchors."""
    starts = [(part.a1, part.b1), *((i + 1, j + 1) for i, j in anchors)]
    ends = [*anchors, (part.a2, part.b2)]
    return [Block(a1=a1, a2=a2, b1=b1, b2=b2) for (a1, b1), (a2, b2) in zip(starts, ends, strict=True)]


def _by_difflib(x: list[str], y: list[str], part: Block) -> list[Block]:
    lines, others = x[part.a1 : part.a2], y[part.b1 : part.b2]
    if not lines or not others or len(lines) * len(others) > MOST_PAIRS:
        return [part] if lines or others else []
    codes = difflib.SequenceMatcher(None, lines, others, autojunk=False).get_opcodes()
    return [
        Block(a1=part.a1 + i1, a2=part.a1 + i2, b1=part.b1 + j1, b2=part.b1 + j2)
        for tag, i1, i2, j1, j2 in codes
        if tag != "equal"
    ]


def _joined(changed: Sequence[Block]) -> list[Block]:
    """Join blocks that touch."""
    joined: list[Block] = []
    for block in changed:
        if joined and joined[-1].a2 == block.a1 and joined[-1].b2 == block.b1:
            block = Block(a1=joined[-1].a1, a2=block.a2, b1=joined.pop().b1, b2=block.b2)  # noqa: PLW2901
        joined.append(block)
    return joined
