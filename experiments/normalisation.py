"""Normalisation: division by a group's standard deviation makes tiny differences as loud as large ones.

Seven tasks in ten are easy: solved whether the answer is short or thorough. The others are solved by 1 in
10 short and 1 in 2 thorough answers. A thorough answer costs 0.02 of effort. The policy does not see which
kind a task is, so it has one probability of being thorough. By the reward thoroughness is worth +0.1.
"""

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

SHORT, THOROUGH = 0, 1
EASY_SHARE, EFFORT = 0.7, 0.02
HARD_SOLVED = torch.tensor([0.1, 0.5])
GROUP, GROUPS, VERSIONS, RATE = 8, 32, 200, 0.05


def run(arm: str, seed: int) -> Outcome:
    """Train one policy with plain or with normalised advantages."""
    policy, config = Table(torch.zeros(1, 2), rate=RATE, seed=seed), PolicyConfig(tokens_per_session=1.0)
    thorough, loudest = [0.5], 0.0
    for _ in range(VERSIONS):
        easy = torch.rand(GROUPS, generator=policy.chance).repeat_interleave(GROUP) < EASY_SHARE
        choices = policy.draw(torch.zeros(GROUPS * GROUP, dtype=torch.long))
        lucky = torch.rand(len(choices), generator=policy.chance) < HARD_SOLVED[choices.actions_N]
        rewards = (easy | lucky).float() - EFFORT * (choices.actions_N == THOROUGH)
        advantages = torch.cat([advantages_of(group, arm) for group in rewards.split(GROUP)])
        loudest = max(loudest, float(advantages[easy].abs().max()) if easy.any() else 0.0)
        policy.learn(choices, advantages, sessions=len(choices), config=config)
        thorough.append(float(policy.probabilities()[0, THOROUGH]))
    solved = [float(torch.lerp(*HARD_SOLVED, torch.tensor(share))) for share in thorough]
    return Outcome(
        figures={
            "thorough": thorough[-1],
            "hard tasks solved": solved[-1],
            "largest advantage where all solved": loudest,
        },
        curves={"thorough": thorough, "hard tasks solved": solved},
    )


def advantages_of(rewards: torch.Tensor, arm: str) -> torch.Tensor:
    """Return the advantages of one group, [G]."""
    if arm == PLAIN:
        return torch.tensor(above_the_others(rewards.tolist()))
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-6)


PLAIN, NORMALISED = "plain", "divided by the deviation"
STUDY = Study(
    name="normalisation",
    question="what does division by the group's standard deviation teach where all sessions are right?",
    shrunk="a bandit of one context stands for the model; effort is one number",
    arms=(PLAIN, NORMALISED),
    run=run,
    claims=(
        Claim(
            text="plain: at least 90 % thorough, which is what the reward asks for",
            holds=lambda found: found[PLAIN]["thorough"].low > 0.9,
        ),
        Claim(
            text="divided: at most 10 % thorough, and a third or less of the hard tasks that plain solves",
            holds=lambda found: (
                found[NORMALISED]["thorough"].high < 0.1
                and found[PLAIN]["hard tasks solved"].low > 3 * found[NORMALISED]["hard tasks solved"].high
            ),
        ),
        Claim(
            text="an effort of 0.02 becomes an advantage above 1.5 where all solved (plain: at most 0.02)",
            holds=lambda found: (
                found[NORMALISED]["largest advantage where all solved"].low > 1.5
                and found[PLAIN]["largest advantage where all solved"].high <= 0.0201
            ),
        ),
    ),
)
