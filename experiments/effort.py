"""Effort: a linear price of turns that keeps easy tasks short makes long tasks not worth solving.

The policy sees whether a task is easy or long and chooses its number of turns, 1 to 16. Easy tasks are
nearly always solved in two or three turns, long ones hardly below nine. The weights are such that both prices
lead to two turns on easy tasks; there the marginal prices agree.
"""

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from ostinato.rewards.parts.effort import concave_effort
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

TURNS = torch.arange(1, 17)
EASY, LONG = 0, 1
SOLVED = torch.stack([1 - 0.3**TURNS, torch.sigmoid((TURNS - 9) / 1.5)])
K, Q, WEIGHT = 0.3, 1.5, 0.17
LINEAR_WEIGHT = WEIGHT * (1 + K * 2) ** -Q
"""The marginal price of the concave form at two turns."""
GROUP, GROUPS, VERSIONS, RATE = 8, 32, 600, 0.05


def price(arm: str) -> torch.Tensor:
    """Return the price of each number of turns, [A]."""
    if arm == LINEAR:
        return LINEAR_WEIGHT * TURNS
    if arm == CONCAVE:
        return torch.tensor([WEIGHT * concave_effort(float(turns), k=K, q=Q) for turns in TURNS])
    return torch.zeros(len(TURNS))


def run(arm: str, seed: int) -> Outcome:
    """Train one policy under one price of effort."""
    policy = Table(torch.zeros(2, len(TURNS)), rate=RATE, seed=seed)
    config, costs = PolicyConfig(tokens_per_session=1.0), price(arm)
    turns: list[list[float]] = [[], []]
    solved: list[list[float]] = [[], []]
    for _ in range(VERSIONS):
        kinds = torch.randint(2, (GROUPS,), generator=policy.chance).repeat_interleave(GROUP)
        choices = policy.draw(kinds)
        won = torch.rand(len(kinds), generator=policy.chance) < SOLVED[kinds, choices.actions_N]
        rewards = won.float() - costs[choices.actions_N]
        advantages = [each for group in rewards.split(GROUP) for each in above_the_others(group.tolist())]
        policy.learn(choices, torch.tensor(advantages), sessions=len(kinds), config=config)
        probabilities = policy.probabilities()
        for kind in (EASY, LONG):
            turns[kind].append(float(probabilities[kind] @ TURNS.float()))
            solved[kind].append(float(probabilities[kind] @ SOLVED[kind]))
    return Outcome(
        figures={
            "turns, easy": turns[EASY][-1],
            "turns, long": turns[LONG][-1],
            "solved, easy": solved[EASY][-1],
            "solved, long": solved[LONG][-1],
        },
        curves={"turns, easy": turns[EASY], "solved, long": solved[LONG]},
    )


NONE, LINEAR, CONCAVE = "none", "linear", "concave"
STUDY = Study(
    name="effort",
    question="which price of effort keeps easy tasks short without giving up long ones?",
    shrunk="a bandit of two contexts and sixteen lengths stands for the model",
    arms=(NONE, LINEAR, CONCAVE),
    run=run,
    claims=(
        Claim(
            text="linear and concave take equally many turns on easy tasks (within half a turn), none more",
            holds=lambda found: (
                abs(found[LINEAR]["turns, easy"].estimate - found[CONCAVE]["turns, easy"].estimate) < 0.5
                and found[NONE]["turns, easy"].low > found[CONCAVE]["turns, easy"].high
            ),
        ),
        Claim(
            text="only linear loses long tasks: at most 20 % solved, the others at least 80 %",
            holds=lambda found: (
                found[LINEAR]["solved, long"].high < 0.2
                and min(found[NONE]["solved, long"].low, found[CONCAVE]["solved, long"].low) > 0.8
            ),
        ),
    ),
)
