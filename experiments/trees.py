"""Trees: sessions that are forked after their first turn, against whole sessions at equal tokens.

Eight sessions of two turns are sixteen choices, and so are four first turns with three second ones each. In
one world the first action decides (0.8 against 0.2 solved), in the other the second does. The figure is the
noise of the gradient: its total variance over its squared length, at the uniform policy.
"""
# ruff: noqa: N806

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from experiments.two_turns import ACTIONS, CONTEXTS, STATES, World, second_states
from ostinato.train.objective.group import above_the_others
from ostinato.train.objective.tree import tree_advantages

SESSIONS, TRUNKS, BRANCHES, PROMPTS = 8, 4, 3, 3_000
EARLY, LATE = "the first action decides", "the second action decides"


def world_of(kind: str) -> World:
    """Return the chances: action 0 of the turn that decides is the good one."""
    solved = torch.full((CONTEXTS, ACTIONS, ACTIONS), 0.2)
    if kind == EARLY:
        solved[:, 0, :] = 0.8
    else:
        solved[:, :, 0] = 0.8
    return World(solved_CAA=solved)


def run(arm: str, seed: int) -> Outcome:
    """Sample gradients of many prompts, and return their noise in both worlds."""
    figures = {}
    for kind in (EARLY, LATE):
        policy = Table(torch.zeros(STATES, ACTIONS), rate=1.0, seed=seed)
        sample = _trees if arm == TREES else _groups
        gradients = torch.stack([sample(policy, world_of(kind)) for _ in range(PROMPTS)])
        figures[f"noise: {kind}"] = float(gradients.var(0).sum() / gradients.mean(0).square().sum())
        figures[f"length: {kind}"] = float(gradients.mean(0).norm())
    return Outcome(figures=figures, curves={})


def _groups(policy: Table, world: World) -> torch.Tensor:
    """Return the gradient of one prompt by whole sessions, [S * A]."""
    contexts = torch.zeros(SESSIONS, dtype=torch.long)
    first = policy.draw(contexts)
    second = policy.draw(second_states(contexts, first.actions_N))
    rewards = world.rewards(contexts, first.actions_N, second.actions_N, policy.chance)
    advantages = torch.tensor(above_the_others(rewards.tolist()))
    return _gradient(policy, first, advantages, SESSIONS) + _gradient(policy, second, advantages, SESSIONS)


def _trees(policy: Table, world: World) -> torch.Tensor:
    """Return the gradient of one prompt by forked sessions, [S * A]."""
    contexts = torch.zeros(TRUNKS, dtype=torch.long)
    first = policy.draw(contexts)
    states = second_states(contexts, first.actions_N).repeat_interleave(BRANCHES)
    second = policy.draw(states)
    repeated = first.actions_N.repeat_interleave(BRANCHES)
    rewards = world.rewards(contexts.repeat_interleave(BRANCHES), repeated, second.actions_N, policy.chance)
    of_trunks, of_branches = tree_advantages(rewards.view(TRUNKS, BRANCHES).tolist())
    flat = torch.tensor([each for tree in of_branches for each in tree])
    return _gradient(policy, first, torch.tensor(of_trunks), TRUNKS) + _gradient(policy, second, flat, TRUNKS)


def _gradient(policy: Table, choices, advantages, count: int) -> torch.Tensor:  # type: ignore[no-untyped-def]
    probabilities_SA = policy.probabilities()
    total_SA = torch.zeros_like(probabilities_SA)
    scores_NA = -probabilities_SA[choices.states_N]
    scores_NA[torch.arange(len(choices)), choices.actions_N] += 1
    total_SA.index_add_(0, choices.states_N, advantages[:, None] * scores_NA)
    return total_SA.flatten() / count


PLAIN, TREES = "8 whole sessions", "4 trees of 3 branches"
STUDY = Study(
    name="trees",
    question="is the gradient of forked sessions less noisy at equal tokens?",
    shrunk="a table over two turns stands for the model; both turns are equally long",
    arms=(PLAIN, TREES),
    run=run,
    claims=(
        Claim(
            text="both have the same expected gradient (lengths within 5 %)",
            holds=lambda found: all(
                abs(found[TREES][f"length: {kind}"].estimate / found[PLAIN][f"length: {kind}"].estimate - 1)
                < 0.05
                for kind in (EARLY, LATE)
            ),
        ),
        Claim(
            text="where the second action decides, trees are less noisy",
            holds=lambda found: found[TREES][f"noise: {LATE}"].high < found[PLAIN][f"noise: {LATE}"].low,
        ),
        Claim(
            text="where the first action decides, trees are noisier: they try half as many",
            holds=lambda found: found[TREES][f"noise: {EARLY}"].low > found[PLAIN][f"noise: {EARLY}"].high,
        ),
    ),
)
