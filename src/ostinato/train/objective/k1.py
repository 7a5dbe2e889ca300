"""k1, the divergence from a reference policy, as a part of the reward. Torch-free.

The k1 of a session is the sum over its trained tokens of log pi - log pi_ref, both of the distribution that
the token was sampled from, softmax(logits / T): pi are the trainer's weights at the beginning of the step,
the reference those of a named version. It is a number without a gradient. Its mean over sessions of pi is
KL(pi | pi_ref), and R - weight · k1 as a reward has the gradient of E[R] - weight · KL(pi | pi_ref), as the
gradient of log pi inside the reward has mean 0 (Schulman 2020, "Approximating KL divergence"; differentiated
as a loss, k1 would have no expected gradient at all).

It is taken off before the baseline: advantages are linear in rewards, so those of k1 can be computed here,
where the weights are, and those of the rewards where the rewards are. A live session has the weight in both
that its person's other sessions leave it, and is compared with those of other people, see `influence`.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from ostinato.train.objective.group import Baseline
from ostinato.train.objective.influence import person_advantages
from ostinato.train.objective.tree import tree_advantages
from ostinato.types import Group

Tree = tuple[str, ...]


def trees_of(group: Group) -> tuple[Tree, ...]:
    """Return the sessions behind each reward of a group: one alone, or a trunk and then its branches.

    Raises ValueError for a group of forked sessions that does not say which belong together.
    """
    if group.trees:
        return group.trees
    sessions = dict.fromkeys(sample.session_id for sample in group.samples)
    if len(sessions) > len(group.rewards):
        raise ValueError(
            f"group {group.id}: {len(sessions)} sessions for {len(group.rewards)} rewards: it was recorded "
            "before groups said how their sessions fork; drop it, or train without k1"
        )
    return tuple((session,) for session in sessions)


def k1_advantages(
    groups: Sequence[Group], k1_of: Mapping[str, float], baseline: Baseline
) -> dict[str, float]:
    """Return the advantage of each session in k1 alone, by the same baselines as its reward.

    `k1_of` maps a session to its own sum of k1; one without a trained token has 0. Groups of one session are
    compared with each other: within a kind, and by weight with those of other people only. One that names
    nobody is somebody's own.
    """
    advantages: dict[str, float] = {}
    single: list[tuple[Group, str]] = []
    for group in groups:
        trees = trees_of(group)
        if len(trees) == 1 and len(trees[0]) == 1:
            single.append((group, trees[0][0]))
            continue
        of_trunks, of_branches = tree_advantages([_totals(tree, k1_of) for tree in trees], baseline)
        for tree, of_trunk, each in zip(trees, of_trunks, of_branches, strict=True):
            advantages[tree[0]] = of_trunk
            advantages |= zip(tree[1:], each, strict=True) if len(tree) > 1 else ()
    alone = person_advantages(
        [k1_of.get(session, 0.0) for _, session in single],
        [group.person or group.id for group, _ in single],
        [group.kind for group, _ in single],
        np.array([group.weight for group, _ in single]),
    )
    return advantages | {session: float(a) for (_, session), a in zip(single, alone, strict=True)}


def mean_k1(groups: Sequence[Group], k1_of: Mapping[str, float]) -> float:
    """Return the mean k1 of the sessions in nats, a forked one counted as the mean of its branches."""
    return fmean(fmean(_totals(tree, k1_of)) for group in groups for tree in trees_of(group))


def _totals(tree: Tree, k1_of: Mapping[str, float]) -> list[float]:
    """Return the k1 of each branch from the first turn on."""
    trunk = k1_of.get(tree[0], 0.0)
    return [trunk + k1_of.get(branch, 0.0) for branch in tree[1:]] or [trunk]
