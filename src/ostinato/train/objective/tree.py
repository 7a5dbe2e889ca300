"""Advantages of sessions that were forked: trunks among trunks, branches among siblings. Torch-free."""

from collections.abc import Sequence

from ostinato.train.objective.group import Baseline, above_the_others


def tree_advantages(
    rewards: Sequence[Sequence[float]], baseline: Baseline = above_the_others
) -> tuple[list[float], list[list[float]]]:
    """Return the advantages of trunks and branches, from the rewards of the branches of trees on one prompt.

    A trunk is worth the mean of its branches and compared with the other trunks. A branch is compared with
    those that began where it did: what the turns before the fork were worth is not its doing. It counts as
    the share of its tree that it is, so that a tree of any number of branches, or of none, weighs as much as
    one session: divided by the number of trees, the expected gradient is that of sessions sampled one by one.
    A branch whose siblings are all void is compared as its trunk is, with the other trees.

    >>> tree_advantages([[1.0, 0.0], [1.0, 1.0]])
    ([-0.5, 0.5], [[0.5, -0.5], [0.0, 0.0]])
    """
    trunks = baseline([sum(tree) / len(tree) for tree in rewards])
    branches = [
        [each / len(tree) for each in baseline(tree)] if len(tree) > 1 else [trunk]
        for tree, trunk in zip(rewards, trunks, strict=True)
    ]
    return trunks, branches
