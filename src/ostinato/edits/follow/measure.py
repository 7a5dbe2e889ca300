"""The measurement of how much of an edit a tree still holds."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ostinato.edits.follow.edit import EditHunk, EditVerdict, FollowedEdit, live
from ostinato.edits.follow.locate import TextFile, counted, elsewhere, present, regions, taken
from ostinato.edits.git import FileTree
from ostinato.edits.text.align import Region
from ostinato.edits.text.rates import GONE, Rates, mean, rates
from ostinato.edits.text.tokens import same_meaning, tokens

LOST = 0.5
"""The four-gram rate below which the lines of a hunk are looked for elsewhere."""
REVERTED = 0.1
"""The largest no-revert rate that is a revert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEdit:
    """The rates of an edit and the lines of it that are left.

    >>> MeasuredEdit(rates=GONE, path="a.py", lines=(), kept=False).verdict.value
    'reverted'
    """

    rates: Rates
    path: str
    lines: tuple[tuple[int, int], ...]
    """Ranges [first, last] of the lines that are left, from 1, in `path`."""
    kept: bool
    """True when nothing but formatting changed."""

    @property
    def verdict(self) -> EditVerdict:
        if self.kept:
            return EditVerdict.KEPT
        return EditVerdict.REVERTED if self.rates.no_revert <= REVERTED else EditVerdict.EDITED


def measure(edit: FollowedEdit, tree: FileTree, later: Sequence[FollowedEdit] = ()) -> MeasuredEdit:
    """Return the rates of the edit's hunks, weighted by their length. At least one must not be superseded.

    `later` are the edits proposed after this one; lines of theirs count for them.
    """
    if edit.after is None:
        return _of_deletion(edit, tree)
    text = present(edit, tree)
    hunks = live(edit)
    if text is None:
        return _joined(edit, edit.path, hunks, _followed(edit, hunks, None, tree, taken(later, tree)))
    lines = edit.lines()
    whole = text.lines == tuple(lines) or same_meaning(edit.path, lines, text.lines)
    places = regions(edit, hunks, text)
    here = [_at(edit, hunk, at, text, whole=whole) for hunk, at in zip(hunks, places, strict=True)]
    stay = [_stays(hunk, at) for hunk, at in zip(hunks, here, strict=True)]
    if all(stay):
        return _joined(edit, text.path, hunks, here)
    others = taken(later, tree)
    for region in itertools.compress(places, stay):
        others += counted(text.lines[region.start : region.end])
    return _joined(edit, text.path, hunks, _followed(edit, hunks, here, tree, others))


def _joined(
    edit: FollowedEdit, path: str, hunks: Sequence[EditHunk], parts: Sequence[MeasuredEdit]
) -> MeasuredEdit:
    """Return the measurement of all hunks together."""
    return MeasuredEdit(
        rates=mean([(_weight(edit, hunk), part.rates) for hunk, part in zip(hunks, parts, strict=True)]),
        path=path,
        lines=tuple(line for part in parts for line in part.lines if part.path == path),
        kept=all(part.kept for part in parts),
    )


def _of_deletion(edit: FollowedEdit, tree: FileTree) -> MeasuredEdit:
    """Measure an edit that removed its file."""
    text, why = tree.read(edit.path)
    is_gone = text is None and why == "missing"
    now = [] if is_gone else [text or ""]
    return MeasuredEdit(rates=rates(now, [], [edit.before or ""]), path=edit.path, lines=(), kept=is_gone)


def _stays(hunk: EditHunk, here: MeasuredEdit) -> bool:
    """Return whether enough of a hunk is in its place. The lines of a deletion cannot be elsewhere."""
    return here.kept or here.rates.four_gram >= LOST or hunk.b1 == hunk.b2


def _followed(
    edit: FollowedEdit,
    hunks: Sequence[EditHunk],
    here: Sequence[MeasuredEdit] | None,
    tree: FileTree,
    others: Counter[str],
) -> list[MeasuredEdit]:
    """Measure each hunk in its place, or in the one to which it moved when more of it is there.

    `here` has the measurement of each in its place; None where the file is gone.
    """
    measured = []
    gone = MeasuredEdit(rates=GONE, path=edit.path, lines=(), kept=False)
    for hunk, at in zip(hunks, here or [gone] * len(hunks), strict=True):
        place = None if here and _stays(hunk, at) else elsewhere(edit, hunk, tree, others)
        there = _at(edit, hunk, place[1], place[0], whole=False) if place else at
        measured.append(max(at, there, key=lambda one: (one.rates.four_gram, one.rates.no_revert)))
    return measured


def _at(edit: FollowedEdit, hunk: EditHunk, region: Region, text: TextFile, *, whole: bool) -> MeasuredEdit:
    """Measure one hunk against the region where it lies now."""
    lines, before = edit.lines()[hunk.b1 : hunk.b2], edit.lines_before()[hunk.a1 : hunk.a2]
    now = text.lines[region.start : region.end]
    is_format = tokens(lines) == tokens(before)
    words = region.words(text.lines)
    measured_rates = rates(now, lines, before) if is_format else rates(words, tokens(lines), tokens(before))
    same = (
        _same(edit.path, words, now, lines, is_format=is_format) if lines else measured_rates.no_revert > LOST
    )
    kept = same or (whole and not is_format)
    return MeasuredEdit(
        rates=Rates(four_gram=1.0, no_revert=1.0) if kept else measured_rates,
        path=text.path,
        lines=((region.start + 1, region.end),) if region.end > region.start else (),
        kept=kept,
    )


def _same(
    path: str, words: Sequence[str], now: Sequence[str], lines: Sequence[str], *, is_format: bool
) -> bool:
    if is_format:
        return list(now) == list(lines)
    return same_meaning(path, lines, now) or (words == tokens(lines) and words != tokens(now))


def _weight(edit: FollowedEdit, hunk: EditHunk) -> float:
    """Return the number of characters in the hunk, proposed or before."""
    proposed = "".join(tokens(edit.lines()[hunk.b1 : hunk.b2]))
    before = "".join(tokens(edit.lines_before()[hunk.a1 : hunk.a2]))
    return max(len(proposed), len(before), 1)
