"""The hidden satisfaction of one version against another: what no reward and no trial can see.

Both versions serve the same people with the same requests and the same luck, and nothing of it is recorded.
"""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from ostinato.deploy.statistics import Interval, clustered, interval
from ostinato_lab.week.acts import Vocabulary
from ostinato_lab.week.base import Population, attempt_of
from ostinato_lab.week.policy import ActPolicy, act_of
from ostinato_lab.week.simulation import acts_of, turns_of

VISITS = 40
LEVEL = 0.025
"""The level of each side of an interval."""


def satisfactions(
    policy: ActPolicy, vocabulary: Vocabulary, population: Population, seed: int, visits: int = VISITS
) -> dict[str, float]:
    """Return the mean hidden satisfaction of each honest developer under a version."""
    found = {}
    for user in filter(population.honest, population.users):
        total = 0.0
        for number in range(visits):
            request = population.request(user, number)
            turns = turns_of(
                policy, vocabulary, request, session_id=f"{user}-{number}", arm="judge", at=0.0, seed=seed
            )
            acts = acts_of(act_of(vocabulary, turn.completion) for turn in turns)
            attempt = attempt_of(request, acts, Random(f"judge/{seed}/{user}/{number}"))
            total += population.feedback(user, number, attempt).satisfaction
        found[user] = total / visits
    return found


def gain(
    first: ActPolicy, last: ActPolicy, vocabulary: Vocabulary, population: Callable[[], Population], seed: int
) -> list[float]:
    """Return, for each honest developer, the hidden satisfaction under `last` less that under `first`."""
    before, after = (satisfactions(each, vocabulary, population(), seed) for each in (first, last))
    return [after[user] - before[user] for user in before]


def mean_gain(gains: Sequence[float]) -> Interval:
    """Return the mean over developers between its 95 % bounds."""
    return interval(clustered(np.array(gains), np.ones(len(gains))), LEVEL)
