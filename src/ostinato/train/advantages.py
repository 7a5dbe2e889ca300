"""Advantages from rewards: how much better a session was than its peers.

No division by the standard deviation anywhere: it would blow up tiny differences in groups that are all
right or all wrong. No division by length either: it would make long failures cheap. A session's own reward is
never in its baseline, so that the expected gradient is that of the expected reward, for groups of any size.
"""

from collections import defaultdict
from collections.abc import Sequence


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Return each reward minus the mean of the others of the group, sessions of the same prompt.

    They add up to 0; a session that is alone gets 0.

    >>> group_advantages([1.0, 0.0, 0.0, 0.0, 1.0])
    [0.75, -0.5, -0.5, -0.5, 0.75]
    """
    return [_above_the_others(reward, rewards) for reward in rewards]


def tree_advantages(rewards: Sequence[Sequence[float]]) -> tuple[list[float], list[list[float]]]:
    """Return the advantages of trunks and branches, from the rewards of the branches of trees on one prompt.

    A trunk is worth the mean of its branches and compared with the other trunks. A branch is compared with
    those that began where it did: what the turns before the fork were worth is not its doing. It counts as
    the share of its tree that it is, so that a tree of any number of branches, or of none, weighs as much as
    one session: divided by the number of trees, the expected gradient is that of sessions sampled one by one.
    A branch whose siblings are all void is compared as its trunk is, with the other trees.

    >>> tree_advantages([[1.0, 0.0], [1.0, 1.0]])
    ([-0.5, 0.5], [[0.5, -0.5], [0.0, 0.0]])
    """
    trunks = group_advantages([sum(tree) / len(tree) for tree in rewards])
    branches = [
        [each / len(tree) for each in group_advantages(tree)] if len(tree) > 1 else [trunk]
        for tree, trunk in zip(rewards, trunks, strict=True)
    ]
    return trunks, branches


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
    return [
        _above_the_others(reward, peers[stratum]) for reward, stratum in zip(rewards, strata, strict=True)
    ]


def _above_the_others(reward: float, all_of_them: Sequence[float]) -> float:
    others = len(all_of_them) - 1
    return reward - (sum(all_of_them) - reward) / others if others else 0.0
