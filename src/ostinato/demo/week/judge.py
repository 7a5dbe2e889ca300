"""The hidden satisfaction of one version against another: what no reward and no trial can see.

Both versions serve the same people with the same requests and the same luck, and nothing of it is recorded.
"""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from ostinato.demo.week.base import Crowd, attempt_of
from ostinato.demo.week.policy import ActPolicy, act_of
from ostinato.demo.week.town import acts_of, turns_of
from ostinato.demo.week.words import Words
from ostinato.deploy.statistics import Interval, clustered, interval

VISITS = 40
LEVEL = 0.025
"""The level of each side of an interval."""


def satisfactions(
    policy: ActPolicy, words: Words, crowd: Crowd, seed: int, visits: int = VISITS
) -> dict[str, float]:
    """Return the mean hidden satisfaction of each honest developer under a version."""
    found = {}
    for user in filter(crowd.honest, crowd.users):
        total = 0.0
        for number in range(visits):
            request = crowd.request(user, number)
            turns = turns_of(
                policy, words, request, session_id=f"{user}-{number}", arm="judge", at=0.0, seed=seed
            )
            acts = acts_of(act_of(words, turn.completion) for turn in turns)
            attempt = attempt_of(request, acts, Random(f"judge/{seed}/{user}/{number}"))
            total += crowd.visit(user, number, attempt).satisfaction
        found[user] = total / visits
    return found


def gain(
    first: ActPolicy, last: ActPolicy, words: Words, crowd: Callable[[], Crowd], seed: int
) -> list[float]:
    """Return, for each honest developer, the hidden satisfaction under `last` less that under `first`."""
    before, after = (satisfactions(each, words, crowd(), seed) for each in (first, last))
    return [after[user] - before[user] for user in before]


def mean_gain(gains: Sequence[float]) -> Interval:
    """Return the mean over developers between its 95 % bounds."""
    return interval(clustered(np.array(gains), np.ones(len(gains))), LEVEL)
