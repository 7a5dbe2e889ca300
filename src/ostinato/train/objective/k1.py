"""k1, the divergence from a reference policy, as a part of the reward. Torch-free.

The k1 of a session is the sum over its trained tokens of log pi - log pi_ref, both of the distribution that
the token was sampled from, softmax(logits / T): pi are the trainer's weights at the beginning of the step,
the reference those of a named version. It is a number without a gradient. Its mean over sessions of pi is
KL(pi | pi_ref), and R - weight · k1 as a reward has the gradient of E[R] - weight · KL(pi | pi_ref), as the
gradient of log pi inside the reward has mean 0 (Schulman 2020, "Approximating KL divergence"; differentiated
as a loss, k1 would have no expected gradient at all).

It is taken off before the baseline: advantages are linear in rewards, so those of k1 can be computed here,
where the weights are, and those of the rewards where the rewards are.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from ostinato.train.objective.group import Baseline
from ostinato.train.objective.stratum import leave_one_out
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

    `k1_of` maps a session to its own sum of k1; one without a trained token has 0. A group of one session is
    compared with the other such groups of its kind, as its reward was.
    """
    advantages: dict[str, float] = {}
    single = {group.id: tree for group in groups for tree in _single(trees_of(group))}
    for group in groups:
        trees = trees_of(group)
        of_trunks, of_branches = tree_advantages([_totals(tree, k1_of) for tree in trees], baseline)
        for tree, of_trunk, each in zip(trees, of_trunks, of_branches, strict=True):
            advantages[tree[0]] = of_trunk
            advantages |= zip(tree[1:], each, strict=True) if len(tree) > 1 else ()
    kinds = [group.kind for group in groups if group.id in single]
    values = [k1_of.get(tree[0], 0.0) for tree in single.values()]
    alone = leave_one_out(values, kinds)
    return advantages | {tree[0]: each for tree, each in zip(single.values(), alone, strict=True)}


def mean_k1(groups: Sequence[Group], k1_of: Mapping[str, float]) -> float:
    """Return the mean k1 of the sessions in nats, a forked one counted as the mean of its branches."""
    return fmean(fmean(_totals(tree, k1_of)) for group in groups for tree in trees_of(group))


def _single(trees: Sequence[Tree]) -> Sequence[Tree]:
    """Return the only session of a group of one that was not forked."""
    return trees if len(trees) == 1 and len(trees[0]) == 1 else ()


def _totals(tree: Tree, k1_of: Mapping[str, float]) -> list[float]:
    """Return the k1 of each branch from the first turn on."""
    trunk = k1_of.get(tree[0], 0.0)
    return [trunk + k1_of.get(branch, 0.0) for branch in tree[1:]] or [trunk]
