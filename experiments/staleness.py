"""Staleness: what the distance between sampler and trainer costs, with and without a correction.

Every session is sampled by the policy of so many versions ago. In each context one pair of actions is solved
nine times in ten, any other at most three times in ten.
"""

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from experiments.two_turns import ACTIONS, CONTEXTS, STATES, World, sessions
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

GROUP, GROUPS, VERSIONS, RATE = 8, 12, 150, 0.1
GAPS = (0, 1, 4, 8, 16)
NONE, TRUNCATED, ICEPOP, SEQUENCE = "none", "truncated", "icepop", "sequence"


def arm_of(gap: int, correction: str) -> str:
    return f"{gap} behind, {correction}"


ARMS = {arm_of(gap, correction): (gap, correction) for gap in GAPS for correction in (NONE, TRUNCATED)}
ARMS |= {arm_of(16, correction): (16, correction) for correction in (ICEPOP, SEQUENCE)}


def world_of(seed: int) -> World:
    """Return the seed's world: the same for every arm."""
    chance = torch.Generator().manual_seed(1_000 + seed)
    solved = 0.3 * torch.rand(CONTEXTS, ACTIONS, ACTIONS, generator=chance)
    best = torch.randint(ACTIONS, (CONTEXTS, 2), generator=chance)
    solved[torch.arange(CONTEXTS), best[:, 0], best[:, 1]] = 0.9
    return World(solved_CAA=solved)


def run(arm: str, seed: int) -> Outcome:
    """Train one policy on sessions that are so many versions behind."""
    gap, correction = ARMS[arm]
    world, policy = world_of(seed), Table(torch.zeros(STATES, ACTIONS), rate=RATE, seed=seed)
    config = PolicyConfig(tokens_per_session=1.0, correction=correction)
    past, reached = [policy.copy()], []
    for _ in range(VERSIONS):
        contexts = torch.randint(CONTEXTS, (GROUPS,), generator=policy.chance).repeat_interleave(GROUP)
        choices, first, second = sessions(policy, contexts, past[max(0, len(past) - 1 - gap)])
        rewards = world.rewards(contexts, first, second, policy.chance)
        advantages = [each for group in rewards.split(GROUP) for each in above_the_others(group.tolist())]
        policy.learn(choices, torch.tensor(advantages).repeat(2), sessions=len(contexts), config=config)
        past.append(policy.copy())
        reached.append(world.expected(policy.probabilities()))
    curves = {"solved": reached} if gap in (0, 16) else {}
    return Outcome(
        figures={"solved on the way": sum(reached) / len(reached), "solved at the end": reached[-1]},
        curves=curves or {"solved, gap of 1 to 8": reached},
    )


WAY, END = "solved on the way", "solved at the end"
ONE_BEHIND = Claim(
    text="one version behind costs at most 3 points on the way, with and without correction",
    holds=lambda found: all(
        found[arm_of(0, each)][WAY].estimate - found[arm_of(1, each)][WAY].estimate < 0.03
        for each in (NONE, TRUNCATED)
    ),
)
STUDY = Study(
    name="staleness",
    question="what does staleness cost, and what does a correction give back?",
    shrunk="a table over two turns stands for the model; every token is equally stale",
    arms=tuple(ARMS),
    run=run,
    claims=(
        ONE_BEHIND,
        Claim(
            text="sixteen behind and uncorrected ends at least 5 points below on-policy",
            holds=lambda found: found[arm_of(0, NONE)][END].low - 0.05 > found[arm_of(16, NONE)][END].high,
        ),
        Claim(
            text="at sixteen behind the truncated ratio ends higher than no correction",
            holds=lambda found: found[arm_of(16, TRUNCATED)][END].low > found[arm_of(16, NONE)][END].high,
        ),
        Claim(
            text="at sixteen behind IcePop, which drops tokens, ends lower than the truncated ratio",
            holds=lambda found: found[arm_of(16, ICEPOP)][END].high < found[arm_of(16, TRUNCATED)][END].low,
        ),
    ),
)
