"""The people whom no trial ever meets, and the sum of all promotions, judged on them.

Each promotion is judged against the champion of its time, and each may be wrong or lose something slowly. So
a fixed share of users, whom a hash decides once and for ever, is served by two arms side by side: one half by
the first version, the other half by the newest champion. Their sessions are never in a trial and never
trained on. Tasks that no gate sees show the same of the solve rate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ostinato.deploy.abtest import compare
from ostinato.deploy.effects import MIN_USERS
from ostinato.deploy.gate import solved_change
from ostinato.deploy.outcomes import Measurement
from ostinato.deploy.statistics import Interval, anytime, interval
from ostinato.deploy.terms import Trial, TrialSession
from ostinato.types import Arm
from ostinato.types.release import HOLD_OUT

FIRST, NEWEST = "holdout-first", "holdout-newest"
LEVEL = 0.05
"""The chance that the interval ever leaves out the truth, however often it is looked at."""
TIGHTEST = 0.05
"""The error in reward a session at which the interval is narrowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOfPromotions:
    """The newest champion against the first version, on the people of the hold-out.

    >>> SumOfPromotions(sessions=0, users={}, change=None).change
    """

    sessions: int
    users: Mapping[str, int]
    change: Interval | None
    """The change of the reward a session, mean over users; None with fewer than eight people on an arm."""

    def __str__(self) -> str:
        people = ", ".join(f"{n} on {name}" for name, n in self.users.items())
        shown = (
            "too few to compare"
            if self.change is None
            else f"{self.change} reward a session, mean over users"
        )
        return f"newest version against the first: {shown} ({self.sessions} sessions; {people or 'nobody'})"


def hold_out_arms(first: Arm, champion: Arm, share: float) -> tuple[Arm, Arm]:
    """Return the two arms of a hold-out of `share` of all users."""
    about = {"share": share / 2, "experiment": HOLD_OUT}
    return (
        Arm(name=FIRST, version=first.version, engines=first.engines, **about),  # type: ignore[arg-type]
        Arm(name=NEWEST, version=champion.version, engines=champion.engines, **about),  # type: ignore[arg-type]
    )


def kept(arm: Arm, champion: Arm) -> Arm:
    """Return an arm that a new split leaves out: one of the hold-out keeps its share, others lose it."""
    if arm.experiment != HOLD_OUT:
        return replace(arm, share=0.0)
    follows = arm.name == NEWEST
    return replace(arm, version=champion.version, engines=champion.engines) if follows else arm


def sum_of_promotions(sessions: Sequence[TrialSession], before: Mapping[str, float]) -> SumOfPromotions:
    """Return the change between the arms of the hold-out; `before` maps a user to an earlier mean reward."""
    arm_of = {session.user: session.arm for session in sessions}
    users = {name: list(arm_of.values()).count(name) for name in (FIRST, NEWEST)}
    change = None
    if min(users.values()) >= MIN_USERS:
        trial = Trial(
            experiment=HOLD_OUT,
            share=0.5,
            horizon=len(sessions),
            alpha=LEVEL,
            champion=FIRST,
            challenger=NEWEST,
        )
        values = [(session, session.value) for session in sessions]
        change = anytime(compare(trial, values, before), LEVEL, TIGHTEST)
    return SumOfPromotions(sessions=len(sessions), users=users, change=change)


def sum_on_tasks(first: Measurement, newest: Measurement, promotions: int) -> str:
    """Return the change of the solve rate on the frozen tasks, after so many promotions, in words."""
    change = solved_interval(first, newest, promotions)
    tasks = len(first.outcomes)
    return f"version {newest.report.version} against the first: {change} solve rate ({tasks} frozen tasks)"


def solved_interval(first: Measurement, newest: Measurement, look: int) -> Interval:
    """Return the change of the solve rate at the look of that number, the first of which is 1.

    The k-th look takes LEVEL · 6 / (π² k²), so that the chance that any interval ever leaves out the truth is
    LEVEL at most.
    """
    level = LEVEL * 6 / (math.pi * look) ** 2
    return interval(solved_change(first, newest), level / 2)
