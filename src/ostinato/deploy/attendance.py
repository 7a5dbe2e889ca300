"""Who came back, by arm: an arm that drives people away has few sessions to be judged by.

Everybody counts from their assignment on, whatever became of their sessions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ostinato.deploy.effects import MIN_USERS, effect
from ostinato.deploy.statistics import Estimate

PEOPLE = ("sessions", "returning")
"""The guardrails of people, which are read from their attendance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """How often one user came, from their assignment to an arm until now.

    >>> Attendance(arm="champion", user="ada", sessions=3).gone is None
    True
    """

    arm: str
    user: str
    sessions: int
    """The sessions that they began."""
    gone: float | None = None
    """The share of their sessions after which they did not come back in time, of those that are old enough to
    tell; None while none is."""


def absence(
    attendance: Sequence[Attendance], challenger: str, scales: Mapping[str, float]
) -> dict[str, tuple[Estimate, float]]:
    """Return the rise of each guardrail of people, and the part of those who came that it is read from.

    `scales` has, by guardrail, how many times the champion's mean the `challenger`'s may reach.
    "sessions" is the fall of the mean logarithm of a user's sessions, so that a few who work all day do not
    decide it; "returning" is the rise of the mean share of sessions after which a user was gone. Users who
    are too new to tell are left out of the second, so its bounds are as wide as in a trial that is less far.
    """
    found = {}
    for name, scale in scales.items():
        read = [(each, -math.log(each.sessions) if name == "sessions" else each.gone) for each in attendance]
        known = [(each, value) for each, value in read if value is not None]
        theirs = np.array([each.arm == challenger for each, _ in known], dtype=bool)
        if min(theirs.sum(), (~theirs).sum()) < MIN_USERS:
            continue
        ones, none = np.ones(len(known)), np.full(len(known), np.nan)
        values = np.array([value for _, value in known])
        rise = effect(ones, values, theirs, none, scale=scale)
        found[name] = rise, len(known) / len(attendance)
    return found
