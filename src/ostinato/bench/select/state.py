"""State tracking: a file, many changes to it as diffs, and the question what the file is in the end.

The score is the edit distance in characters, and not a share of exact answers: one wrong character of
thousands is not a model that lost the file. Every item is made by a seed from files of the codebase.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ostinato.bench.select.base import Candidate, Prompt, SelectError, hash_of

FENCE = "```"
END = f"{FENCE}\n"
EXAMPLE_BEFORE, EXAMPLE_AFTER = "a = 1\nb = 2\nprint(a)\n", "a = 1\nb = 3\nprint(a)\n"
NAME = re.compile(r"\b[a-z_]\w{2,}\b")
SLACK = 1.25
"""The length of the longest answer that is read, in lengths of the right one."""
LONGEST_LINE = 400
"""The characters of a line above which a file is not tracked: a prompt with it would fit in no context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedFile:
    """A file through its changes.

    >>> TrackedFile(path="a.py", states=("x\\n", "y\\n")).states[-1]
    'y\\n'
    """

    path: str
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTracking:
    """The distance in characters from what a model says the file is to what it is.

    >>> StateTracking(items=(TrackedFile(path="a.py", states=("x\\n", "y\\n")),)).facts["unchanged"]
    1.0
    """

    items: tuple[TrackedFile, ...]
    left_out: int = 0
    """The files of the codebase with too few lines, one too long, or a fence of their own."""
    name: str = "state"
    unit: str = "characters"
    more_is_better: bool = False

    @property
    def weights(self) -> tuple[float, ...]:
        return (1.0,) * len(self.items)

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(item.path for item in self.items)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The numbers of files and changes, and the distance of who answers with the file before them."""
        before = [distance(item.states[0], item.states[-1]) for item in self.items]
        return {
            "files": len(self.items),
            "changes": sum(len(item.states) - 1 for item in self.items),
            "unchanged": sum(before) / len(before),
            "left out": self.left_out,
        }

    @property
    def hash(self) -> str:
        return hash_of([self.name, 1, SLACK, [[prompt(item), item.states[-1]] for item in self.items]])

    async def values(self, candidate: Candidate) -> tuple[float, ...]:
        asked = [
            Prompt(text=prompt(item), end=END, most=int(SLACK * len(item.states[-1])) + 1)
            for item in self.items
        ]
        answers = await candidate.complete(asked)
        return tuple(
            float(distance(answer, item.states[-1])) for answer, item in zip(answers, self.items, strict=True)
        )


def tracked(
    files: Mapping[str, str], *, number: int, lines: int, changes: int, seed: int = 1
) -> StateTracking:
    """Return at most `number` items: a stretch of `lines` lines of a file, changed `changes` times.

    Raises SelectError when no file has as many lines, none of them too long.
    """
    rng = Random(seed)
    plain = {path: files[path].split("\n") for path in sorted(files) if FENCE not in files[path]}
    long = {
        path: rows
        for path, rows in plain.items()
        if len(rows) >= lines and max(map(len, rows)) <= LONGEST_LINE
    }
    if not long:
        raise SelectError(
            f"no file of the codebase has {lines} lines to track, of {LONGEST_LINE} characters at most: give "
            "--lines less, or more code"
        )
    pool = [row for rows in long.values() for row in rows if row.strip()]
    if not pool:
        raise SelectError("the codebase holds empty lines alone: give other code")
    items = []
    for path in rng.sample(list(long), min(number, len(long))):
        start = rng.randrange(len(long[path]) - lines + 1)
        rows = long[path][start : start + lines]
        states = [_text(rows)]
        while len(states) <= changes:
            rows = _changed(rows, pool, rng)
            if (text := _text(rows)) != states[-1]:
                states.append(text)
        items.append(TrackedFile(path=path, states=tuple(states)))
    return StateTracking(items=tuple(items), left_out=len(files) - len(long))


def _changed(rows: Sequence[str], pool: Sequence[str], rng: Random) -> list[str]:
    """Return the lines after one change: some leave, some come from the codebase, or a name is another."""
    changed, at = list(rows), rng.randrange(len(rows))
    names = sorted({name for row in rows for name in NAME.findall(row)})
    kind = rng.choice(("replace", "insert", "delete", "rename"))
    if kind == "rename" and names:
        old = rng.choice(names)
        return [re.sub(rf"\b{old}\b", f"{old}_{rng.randrange(10)}", row) for row in rows]
    if kind == "insert" or len(rows) < 3:
        changed.insert(at, rng.choice(pool))
    elif kind == "delete":
        del changed[at]
    else:
        changed[at] = rng.choice(pool)
    return changed


def _text(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def prompt(item: TrackedFile) -> str:
    """Return the text that a model continues: an example with one change, the file, and its changes."""
    example = TrackedFile(path="example.py", states=(EXAMPLE_BEFORE, EXAMPLE_AFTER))
    return f"{_asked(example)}{EXAMPLE_AFTER}{END}\n{_asked(item)}"


def _asked(item: TrackedFile) -> str:
    parts = [f"The file {item.path} was:\n```\n{item.states[0]}{END}"]
    for number, (before, after) in enumerate(zip(item.states, item.states[1:], strict=False), 1):
        rows = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
        parts.append(f"Change {number}:\n```diff\n{_text(list(rows)[2:])}{END}")
    return "".join(parts) + f"The file {item.path} with all changes is:\n```\n"


def distance(one: str, other: str) -> int:
    """Return the least number of characters to insert, delete or replace that makes `other` of `one`.

    A column of the usual table is two whole numbers with a bit for each row (Hyyrö, "A bit-vector algorithm
    for computing Levenshtein and Damerau edit distances", 2003), so thousands of characters take
    milliseconds.

    >>> distance("kitten", "sitting")
    3
    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for row, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << row
    whole, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rises, falls, score = whole, 0, len(one)
    for character in other:
        equal = places.get(character, 0)
        across = (((equal & rises) + rises) ^ rises) | equal
        up, down = falls | ~(across | rises) & whole, rises & across
        score += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & whole, down << 1 & whole
        rises, falls = down | ~(equal | falls | up) & whole, up & (equal | falls)
    return score
