"""The labelled follow-ups that ship: 330 lines from two generators, each labelled twice.

`grammar` lines are built by chance from sentence patterns, `written` lines were written one by one; half of
each show dissatisfaction. The first label is the writer's intent. The second was given by reading the
shuffled lines without the first labels; the reader was the writer, so their agreement shows that the labels
are consistent, and not that people would agree with them.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("lines.tsv")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledLine:
    """One follow-up with both labels; True when it shows dissatisfaction.

    >>> LabelledLine(generator="written", intended=True, read=True, text="still red").intended
    True
    """

    generator: str
    intended: bool
    read: bool
    text: str


@cache
def labelled_lines() -> tuple[LabelledLine, ...]:
    """Return all lines that ship."""
    rows = (line.split("\t", 3) for line in FILE.read_text(encoding="utf-8").splitlines())
    return tuple(
        LabelledLine(generator=generator, intended=first == "1", read=second == "1", text=text)
        for generator, first, second, text in rows
    )
