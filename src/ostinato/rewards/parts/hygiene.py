"""The facts of bad habits with tools: to-dos left open, and reading again what was just read.

The exploits: tick everything off, or shorten the list, so that nothing is open; edit a little between two
reads. The guards: an item that vanishes from the list counts as open; both count on passing work alone and
weigh little, so that ticking off undone work buys next to nothing and failing by it loses everything; an
edit that nobody needs costs scope and effort.
"""

import json
from collections.abc import Iterator

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.parts.work import PLANS, READS, CallMade, Work

CLOSED = frozenset({"completed", "done", "cancelled"})


def open_todos(work: Work) -> Fact:
    """Return the share of the to-dos ever listed that were not closed at the end; 0 without a list."""
    status: dict[str, bool] = {}
    evidence = None
    for call in work.calls:
        if call.name in PLANS:
            evidence = call.turn
            status |= dict(_steps(call))
    left = [step for step, closed in status.items() if not closed]
    if not left or evidence is None:
        return Fact(value=0.0)
    return Fact(value=len(left) / len(status), evidence=(evidence,))


def _steps(call: CallMade) -> Iterator[tuple[str, bool]]:
    """Yield each step of a plan and whether it is closed, in whichever words the profile has."""
    for value in call.arguments.values():
        for each in value if isinstance(value, list) else ():
            if isinstance(each, dict) and "status" in each:
                words = next((str(v) for k, v in each.items() if k in ("content", "step", "text")), "")
                yield words, each["status"] in CLOSED


def repeated_reads(work: Work) -> Fact:
    """Return the share of reads that were the same as an earlier one, with only reads between them."""
    reads, repeats, seen = 0, [], set[str]()
    for call in work.calls:
        if call.name not in READS:
            seen.clear()  # a command or an edit may have changed the file
            continue
        reads += 1
        key = json.dumps([call.name, call.arguments], sort_keys=True)
        if key in seen:
            repeats.append(call.turn)
        seen.add(key)
    return Fact(value=len(repeats) / reads if reads else 0.0, evidence=tuple(dict.fromkeys(repeats)))
