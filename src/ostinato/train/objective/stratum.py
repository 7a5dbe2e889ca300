"""Advantages of prompts that were sampled once, by comparison with others of their kind. Torch-free."""

from collections import defaultdict
from collections.abc import Sequence

from ostinato.train.objective.group import above


def leave_one_out(rewards: Sequence[float], strata: Sequence[str]) -> list[float]:
    """Return each reward minus the mean of the other sessions of its stratum, for prompts sampled once.

    Within a stratum they add up to 0. A session alone in its stratum is compared with all the others; one
    that is alone altogether gets 0.

    >>> leave_one_out([1.0, 0.0, 5.0, 7.0], ["fix", "fix", "question", "question"])
    [1.0, -1.0, -2.0, 2.0]
    """
    by_stratum: dict[str, list[float]] = defaultdict(list)
    for reward, stratum in zip(rewards, strata, strict=True):
        by_stratum[stratum].append(reward)
    peers = {stratum: group if len(group) > 1 else rewards for stratum, group in by_stratum.items()}
    return [above(reward, peers[stratum]) for reward, stratum in zip(rewards, strata, strict=True)]
