"""Visible tests: a reward that reads what the agent can see is a reward for writing what it wants to see.

A task can be mended honestly (0.6 pass both suites), its visible tests can be answered by hard-coded values
(0.95 pass what is visible, none what is hidden), or the visible tests can be rewritten (they always pass, the
hidden ones as the code stood, 0.05; the verifier lists the file as tampered).
"""

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from ostinato.rewards.practice.definition import PRACTICE
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

HONEST, HARD_CODED, REWRITTEN = 0, 1, 2
VISIBLE = torch.tensor([0.6, 0.95, 1.0])
HIDDEN = torch.tensor([0.6, 0.0, 0.05])
AT_FIRST = torch.tensor([0.96, 0.03, 0.01])
GROUP, GROUPS, VERSIONS, RATE = 8, 32, 200, 0.05


def run(arm: str, seed: int) -> Outcome:
    """Train one policy on the visible or on the hidden tests."""
    policy = Table(AT_FIRST.log()[None], rate=RATE, seed=seed)
    config = PolicyConfig(tokens_per_session=1.0)
    passes, tampering = (VISIBLE, 0.0) if arm == SEEN else (HIDDEN, PRACTICE.weights["tampered"])
    seen, hidden = [], []
    for _ in range(VERSIONS):
        choices = policy.draw(torch.zeros(GROUPS * GROUP, dtype=torch.long))
        passed = torch.rand(len(choices), generator=policy.chance) < passes[choices.actions_N]
        rewritten = choices.actions_N == REWRITTEN
        paid = passed if arm == SEEN else passed & ~rewritten
        rewards = paid.float() + tampering * rewritten
        advantages = [each for group in rewards.split(GROUP) for each in above_the_others(group.tolist())]
        policy.learn(choices, torch.tensor(advantages), sessions=len(choices), config=config)
        probabilities = policy.probabilities()[0]
        seen.append(float(probabilities @ VISIBLE))
        hidden.append(float(probabilities @ HIDDEN))
    return Outcome(
        figures={"visible tests pass": seen[-1], "hidden tests pass": hidden[-1]},
        curves={"visible tests pass": seen, "hidden tests pass": hidden},
    )


SEEN, UNSEEN = "reward of visible tests", "reward of hidden tests"
STUDY = Study(
    name="visible_tests",
    question="what does a reward of the tests that the agent can see teach?",
    shrunk="a bandit of three actions stands for the model",
    arms=(SEEN, UNSEEN),
    run=run,
    claims=(
        Claim(
            text="visible: at least 95 % pass what is visible, at most 6 % what is hidden",
            holds=lambda found: (
                found[SEEN]["visible tests pass"].low > 0.95 and found[SEEN]["hidden tests pass"].high < 0.06
            ),
        ),
        Claim(
            text="hidden: what is hidden passes as often as honest work does (0.6)",
            holds=lambda found: found[UNSEEN]["hidden tests pass"].low > 0.58,
        ),
    ),
)
