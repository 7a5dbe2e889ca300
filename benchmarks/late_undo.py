"""Trials whose wrong edits are undone late: what is promoted, and what still stays after its outcome window.

`benchmarks.decisions` prints them. The shipped reward, `judge` and the shipped outcomes decide; people are
those of `fuzz/late_trials.py`.
"""

import time
from collections import Counter

import numpy as np
from fuzz.late_trials import Version, simulate

from benchmarks.releases import Row, rate
from ostinato.types import Decision

CHAMPION = Version(right=0.6, undone_h=1.0)
CHALLENGERS = {
    "45 %, undone at 30 h": Version(right=0.45, undone_h=30.0),
    "55 %, undone at 30 h": Version(right=0.55, undone_h=30.0),
    "60 %, undone at 30 h": Version(right=0.6, undone_h=30.0),
    "70 %": Version(right=0.7, undone_h=1.0),
    "80 %": Version(right=0.8, undone_h=1.0),
}
"""The challengers of a champion that is right in 60 %, its wrong edits undone at 1 h; the first is bad."""


def late_undo(runs: int, seed: int) -> Row:
    """Return the rate at which the bad challenger stays promoted after its outcome window, beside others."""
    by_kind: Row = {}
    for number, (kind, challenger) in enumerate(CHALLENGERS.items()):
        n = runs if number == 0 else max(1, runs // 4)
        rng, started = np.random.default_rng([seed, 36, number]), time.process_time()
        found = [simulate(rng, CHAMPION, challenger) for _ in range(n)]
        late = Counter(each.late.decision for each in found if each.late is not None)
        promoted = [each for each in found if each.trial.decision.promotes]
        by_kind[kind] = {
            "promoted": rate(len(promoted), n),
            "stays": rate(sum(each.stays for each in found), n),
            "confirmed": late[Decision.CONFIRM],
            "demoted": late[Decision.DEMOTE],
            "longest_h": max((each.settled_h for each in promoted), default=0.0),
            "cpu_s": round(time.process_time() - started, 1),
        }
    return {**by_kind[next(iter(CHALLENGERS))]["stays"], "by_kind": by_kind}
