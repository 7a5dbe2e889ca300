"""The current place of an edit's lines: in their file, in the file under its new name, or moved elsewhere.

Lines have moved to a place only when there are more of them than before the edit. Equal lines that were
there all along prove nothing. So the changed files are counted as they were and as they are, whatever their
names, and only the surplus can have moved. A few common lines (`return None`) may occur by chance, so a
move also needs enough text.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ostinato.edits.follow.edit import EarlierLines, EditHunk, FollowedEdit, live
from ostinato.edits.git import FileTree
from ostinato.edits.text.align import Region, blocks, follow, split
from ostinato.edits.text.rates import alike
from ostinato.edits.text.tokens import key, tokens

ENOUGH = 0.5
"""The share of the lines that must be found again for a move."""
TELLING = 40
"""Characters that the distinct lines of a move must have together, without formatting."""
SHORTEST = 8
"""Characters from which a line is distinctive."""
MOST_PAIRS = 4_000_000
MOST_BROKEN = 40
"""The most lines into which a formatter breaks one."""
MOST_FILES = 300
"""Files that are searched for lines that left their own."""
NEIGHBOURS = (12, 6, 3)
"""The lines on either side of a hunk that show where it went, if they went with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """The path and lines of a file.

    >>> TextFile(path="a.py", lines=("x\\n",)).path
    'a.py'
    """

    path: str
    lines: tuple[str, ...]


def present(edit: FollowedEdit, tree: FileTree) -> TextFile | None:
    """Return the file of the edit, under its current name; None when it no longer exists."""
    text, _ = tree.read(edit.path)
    if text is not None:
        return TextFile(path=edit.path, lines=tuple(split(text)))
    renamed = tree.renamed(edit.base, edit.first_path)
    moved = _text(tree, renamed) if renamed else None
    return moved or _likest(edit, tree)


def regions(edit: FollowedEdit, hunks: Sequence[EditHunk], text: TextFile) -> list[Region]:
    """Return the region of each hunk in `text`."""
    lines = edit.lines()
    changes = blocks(lines, text.lines)
    return [follow(changes, lines, text.lines, hunk.b1, hunk.b2) for hunk in hunks]


def elsewhere(
    edit: FollowedEdit, hunk: EditHunk, tree: FileTree, taken: Counter[str]
) -> tuple[TextFile, Region] | None:
    """Return the place to which the lines of a hunk moved; None when they are nowhere.

    `taken` counts, by `key`, the lines of now that belong to something else.
    """
    hunk_lines = edit.lines()[hunk.b1 : hunk.b2]
    wanted = [key(line) for line in hunk_lines]
    was = {edit.first_path: counted(edit.lines_before())}
    gained = _gained(edit, tree, Counter(wanted), was) - taken
    if _share(wanted, gained) < ENOUGH or not _tells(wanted, gained):
        return _with_neighbours(edit, hunk, tree, taken)
    best: tuple[float, TextFile, Region] | None = None
    for path in _likely(edit, tree):
        text = _text(tree, path)
        if text is None or _share(wanted, counted(text.lines)) < ENOUGH:
            continue
        region = _grown(hunk_lines, text.lines, _window(wanted, [key(line) for line in text.lines]))
        share = _share(wanted, counted(text.lines[region.start : region.end]))
        if share >= ENOUGH and (best is None or share > best[0]):
            best = share, text, region
    return (best[1], best[2]) if best else _with_neighbours(edit, hunk, tree, taken)


def _with_neighbours(
    edit: FollowedEdit, hunk: EditHunk, tree: FileTree, taken: Counter[str]
) -> tuple[TextFile, Region] | None:
    """Return the place to which a hunk moved together with the lines around it; None when there is none.

    A few lines alone prove no move, and lines that were deleted are nowhere; the function around them, which
    left its file and is new in another, proves it for both. Where the file is gone, and most of it is new in
    others, fewer lines will do.
    """
    lines, own, base = edit.lines(), _text(tree, edit.path), tree.at(edit.base)
    seen = {each.path: Counter(each.lines) for each in edit.seen}
    whole = [] if own else [key(line) for line in lines]
    is_split = _share(whole, _gained(edit, tree, Counter(whole), {edit.first_path: Counter()})) >= ENOUGH
    best: tuple[tuple[float, float], TextFile, list[str], int] | None = None
    for size in NEIGHBOURS:
        first = max(0, hunk.b1 - size)
        piece = lines[first : hunk.b2 + size]
        wanted = [key(line) for line in piece]
        nearest = [key(line) for line in lines[max(0, hunk.b1 - 1) : hunk.b2 + 1]]
        if own and _share(wanted, counted(own.lines)) >= ENOUGH:
            continue
        for path in _likely(edit, tree):
            text = None if path == edit.path else _text(tree, path)
            if text is None:
                continue
            before = seen[path] if path in seen else counted(split(base.read(path)[0] or ""))
            gained = counted(text.lines) - before - taken
            share = _share(nearest, gained), _share(wanted, gained)
            is_proof = share[1] >= ENOUGH and (is_split or _tells(wanted, gained))
            if is_proof and (best is None or share > best[0]):
                best = share, text, piece, first
    if best is None:
        return None
    _, text, piece, first = best
    around = _window([key(line) for line in piece], [key(line) for line in text.lines])
    place = text.lines[around.start : around.end]
    inner = follow(blocks(piece, place), piece, place, hunk.b1 - first, hunk.b2 - first)
    return text, replace(inner, start=around.start + inner.start, end=around.start + inner.end)


def taken(later: Sequence[FollowedEdit], tree: FileTree) -> Counter[str]:
    """Count the lines of later edits that stand in their own places, so that they count as no move."""
    lines: Counter[str] = Counter()
    for other in later:
        text = _text(tree, other.path)
        if text is not None:
            for region in regions(other, live(other), text):
                lines += counted(text.lines[region.start : region.end])
    return lines


def earlier_lines(lines: Iterable[str], files: Iterable[tuple[str, str | None]]) -> tuple[EarlierLines, ...]:
    """Return, for each of `files` (path and text), the distinctive ones of `lines` that it holds now."""
    wanted = {word for line in lines if len(word := key(line)) >= SHORTEST}
    return tuple(
        EarlierLines(
            path=path, lines=tuple(word for line in split(text or "") if (word := key(line)) in wanted)
        )
        for path, text in files
    )


def _likest(edit: FollowedEdit, tree: FileTree) -> TextFile | None:
    """Return the changed file that holds most of the lines of the edit's file, and did not hold them
    before."""
    wanted = [key(line) for line in edit.lines()]
    if _share(wanted, _gained(edit, tree, Counter(wanted), {edit.first_path: Counter()})) < ENOUGH:
        return None
    texts = [text for path in _likely(edit, tree) if (text := _text(tree, path))]
    best = max(texts, key=lambda text: _share(wanted, counted(text.lines)), default=None)
    return best if best and _share(wanted, counted(best.lines)) >= ENOUGH else None


def _gained(
    edit: FollowedEdit, tree: FileTree, wanted: Counter[str], was: dict[str, Counter[str]]
) -> Counter[str]:
    """Count the surplus of `wanted` lines over those before the edit; `was` overrides single files."""
    base = tree.at(edit.base)
    was = {each.path: Counter(each.lines) for each in edit.seen} | was
    now: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for path in _likely(edit, tree):
        now += _only(wanted, counted(split(tree.read(path)[0] or "")))
        known = was.get(path)
        before += _only(wanted, counted(split(base.read(path)[0] or "")) if known is None else known)
    return now - before


def _only(wanted: Counter[str], lines: Counter[str]) -> Counter[str]:
    return Counter({word: lines[word] for word in wanted if word in lines})


def counted(lines: Iterable[str]) -> Counter[str]:
    """Count the lines, without their formatting."""
    return Counter(key(line) for line in lines)


def _tells(wanted: Sequence[str], counts: Counter[str]) -> bool:
    """Return whether so much was counts again that chance is no explanation."""
    return sum(len(word) for word in set(wanted) if len(word) >= SHORTEST and counts[word]) >= TELLING


def _likely(edit: FollowedEdit, tree: FileTree) -> list[str]:
    """Return the edit's own file and the changed ones, those of the same name and suffix first."""
    own = PurePosixPath(edit.path)

    def distance(path: str) -> tuple[bool, bool, bool, str]:
        other = PurePosixPath(path)
        return path != edit.path, own.name != other.name, own.suffix != other.suffix, path

    return sorted({edit.path, edit.first_path, *tree.changed(edit.base)}, key=distance)[:MOST_FILES]


def _share(wanted: Sequence[str], counts: Counter[str]) -> float:
    """Return the share of the lines, without blank ones, that are among `counts`."""
    lines = Counter(word for word in wanted if word)
    return (lines & counts).total() / lines.total() if lines else 0.0


def _window(wanted: Sequence[str], keys: Sequence[str]) -> Region:
    """Return the part of `keys` that is most like `wanted`: around their longest common run."""
    if len(wanted) * len(keys) > MOST_PAIRS:
        return Region(start=0, end=0)
    matcher = difflib.SequenceMatcher(None, wanted, keys, autojunk=False)
    run = matcher.find_longest_match()
    first = max(0, run.b - run.a - len(wanted) // 2)
    last = min(len(keys), run.b - run.a + len(wanted) + len(wanted) // 2)
    matcher.set_seq2(keys[first:last])
    equal = [block for block in matcher.get_matching_blocks() if block.size]
    return Region(start=first + equal[0].b, end=first + equal[-1].b + equal[-1].size)


def _grown(wanted: Sequence[str], lines: Sequence[str], region: Region) -> Region:
    """Extend the region by the lines beside it that make it more like `wanted`.

    A formatter may have broken up the first or the last of its lines, so that no whole line of those is found
    again.
    """
    text = "".join(tokens(wanted))

    def like(start: int, end: int) -> float:
        return alike("".join(tokens(lines[start:end])), text)

    ends = range(region.end, min(len(lines), region.end + MOST_BROKEN) + 1)
    end = max(ends, key=lambda at: (like(region.start, at), -at))
    starts = range(region.start, max(0, region.start - MOST_BROKEN) - 1, -1)
    start = max(starts, key=lambda at: (like(at, end), at))
    return Region(start=start, end=end)


def _text(tree: FileTree, path: str) -> TextFile | None:
    text, _ = tree.read(path)
    return None if text is None else TextFile(path=path, lines=tuple(split(text)))
