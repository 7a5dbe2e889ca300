"""Where the lines of an edit are now: in their file, in the file as it is called now, or moved elsewhere."""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ostinato.hooks.align import Region, blocks, follow, split
from ostinato.hooks.edits import Edit, Hunk
from ostinato.hooks.git import Tree
from ostinato.hooks.tokens import key

ENOUGH = 0.5
"""Share of the lines that must be met again to speak of a move."""
MOST_PAIRS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A file that was read.

    >>> Text(path="a.py", lines=("x\\n",)).path
    'a.py'
    """

    path: str
    lines: tuple[str, ...]


def present(edit: Edit, tree: Tree) -> Text | None:
    """The file of the edit, under the name it has now; None when it is gone."""
    text, _ = tree.read(edit.path)
    if text is not None:
        return Text(path=edit.path, lines=tuple(split(text)))
    renamed = tree.renamed(edit.base, edit.path)
    moved = _text(tree, renamed) if renamed else None
    return moved or _likest(edit, tree)


def regions(edit: Edit, hunks: Sequence[Hunk], text: Text) -> list[Region]:
    """The place of each hunk in `text`."""
    lines = edit.lines()
    changes = blocks(lines, text.lines)
    return [follow(changes, lines, text.lines, hunk.b1, hunk.b2) for hunk in hunks]


def elsewhere(edit: Edit, hunk: Hunk, tree: Tree) -> tuple[Text, Region] | None:
    """Where the lines of a hunk went that are no longer in their place; None when they are nowhere."""
    wanted = [key(line) for line in edit.lines()[hunk.b1 : hunk.b2]]
    best: tuple[float, Text, Region] | None = None
    for path in _likely(edit, tree):
        text = _text(tree, path)
        if text is None or _share(wanted, text) < ENOUGH:
            continue
        region = _window(wanted, [key(line) for line in text.lines])
        share = _share(wanted, Text(path=path, lines=text.lines[region.start : region.end]))
        if share >= ENOUGH and (best is None or share > best[0]):
            best = share, text, region
    return (best[1], best[2]) if best else None


def _likest(edit: Edit, tree: Tree) -> Text | None:
    """The changed file that holds most of the lines of the edit's file."""
    wanted = [key(line) for line in edit.lines()]
    texts = [text for path in _likely(edit, tree) if (text := _text(tree, path))]
    best = max(texts, key=lambda text: _share(wanted, text), default=None)
    return best if best and _share(wanted, best) >= ENOUGH else None


def _likely(edit: Edit, tree: Tree) -> list[str]:
    """Its own file and the changed ones, those of the same name and kind first."""
    own = PurePosixPath(edit.path)
    paths = {edit.path, *tree.changed(edit.base)}
    return sorted(paths, key=lambda p: (p != edit.path, *_unlike(own, PurePosixPath(p)), p))


def _unlike(own: PurePosixPath, other: PurePosixPath) -> tuple[bool, bool]:
    return own.name != other.name, own.suffix != other.suffix


def _share(wanted: Sequence[str], text: Text) -> float:
    """Share of the lines (blank ones left out) that `text` holds."""
    lines = Counter(word for word in wanted if word)
    if not lines:
        return 0.0
    return (lines & Counter(key(line) for line in text.lines)).total() / lines.total()


def _window(wanted: Sequence[str], keys: Sequence[str]) -> Region:
    """The part of `keys` that looks most like `wanted`: around their longest common run."""
    if len(wanted) * len(keys) > MOST_PAIRS:
        return Region(start=0, end=0)
    matcher = difflib.SequenceMatcher(None, wanted, keys, autojunk=False)
    run = matcher.find_longest_match()
    first = max(0, run.b - run.a - len(wanted) // 2)
    last = min(len(keys), run.b - run.a + len(wanted) + len(wanted) // 2)
    matcher.set_seq2(keys[first:last])
    found = [block for block in matcher.get_matching_blocks() if block.size]
    return Region(start=first + found[0].b, end=first + found[-1].b + found[-1].size)


def _text(tree: Tree, path: str) -> Text | None:
    text, _ = tree.read(path)
    return None if text is None else Text(path=path, lines=tuple(split(text)))
