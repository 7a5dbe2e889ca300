"""What late facts make of a promotion: by simulated trials, and by rows of a record."""

from collections import Counter

import numpy as np
from fuzz.late_trials import Version, simulate

from ostinato.types import Decision

RIGHT = Version(right=0.6, undone_h=1.0)


def test_a_challenger_whose_wrong_edits_are_undone_late_does_not_stay() -> None:
    """Right in 45 % with undoing after 30 hours, against 60 % after one: the hour sees it as far better."""
    rng = np.random.default_rng(36)
    found = [simulate(rng, RIGHT, Version(right=0.45, undone_h=30.0)) for _ in range(20)]
    promoted = [each for each in found if each.trial.decision.promotes]
    assert len(promoted) > 15 and float(promoted[0].trial.evidence["promoting"]["estimate"]) > 0.5
    assert not any(each.stays for each in found)
    assert all(each.settled_h <= 8 * 24 for each in promoted), "within the outcome window"


def test_one_that_is_better_is_confirmed() -> None:
    rng = np.random.default_rng(37)
    found = [simulate(rng, RIGHT, Version(right=0.8, undone_h=1.0)) for _ in range(10)]
    late = Counter(each.late.decision for each in found if each.late is not None)
    assert late[Decision.CONFIRM] >= 9 and not late[Decision.DEMOTE]
