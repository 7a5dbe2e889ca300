"""The fact of carelessness in a passing patch: faults in the lines that it adds.

The exploit: a measure for each function or each line is gamed by splitting functions, or by padding with
clean or commented lines until the share of faults is small. The guard: faults are counted for the patch as a
whole, and a comment or one more function changes no count, so neither can lower it: it never pays to split,
to pad or to reason in comments. Whether a policy does so anyway is watched and not paid for (`monitors`).
"""

import re
from collections.abc import Iterator, Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.signals import latest
from ostinato.types import Signal, SignalKind

MOST_FAULTS = 4
"""Faults from which on the patch counts as wholly careless."""
LONGEST_LINE = 120
FAULTS = tuple(
    map(
        re.compile,
        (
            r"[ \t]+$",
            r"^ *\t+ +| +\t",
            rf"^.{{{LONGEST_LINE + 1},}}",
            r"^\s*except\s*(?:BaseException\s*)?:",
            r"^\s*(?:breakpoint\(|import pdb|debugger;|console\.log\()",
            r"^(?:<{7}|>{7}|={7})(?:\s|$)",
        ),
    )
)
"""Blanks at the end, mixed indentation, long lines, bare excepts, debugging left behind, conflict marks."""


HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def style(signals: Sequence[Signal]) -> Fact:
    """Return the faults in the added lines out of `MOST_FAULTS`, at most 1; 0 without a patch."""
    patch = latest(signals, (SignalKind.PATCH,))
    if patch is None:
        return Fact(value=0.0)
    faults = sum(any(fault.search(line) for fault in FAULTS) for line in _added(str(patch.value)))
    return Fact(value=min(1.0, faults / MOST_FAULTS), evidence=(patch.id,) if faults else ())


def _added(patch: str) -> Iterator[str]:
    """Yield the lines that a unified diff adds; a hunk's header says how many lines are its own."""
    old = new = 0
    for line in patch.split("\n"):
        if head := HUNK.match(line):
            old, new = (1 if count is None else int(count) for count in head.groups())
        elif old > 0 or new > 0:
            old -= line[:1] != "+"
            new -= line[:1] != "-"
            if line[:1] == "+":
                yield line[1:]
