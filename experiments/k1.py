"""k1: the divergence belongs into the reward; differentiated as a loss it does nothing but noise.

One state, six actions with fixed rewards, and a reference that is not uniform. With a weight w on
KL(pi | ref) the best policy is known exactly: ref * exp(reward / w), normalised. Beside it: the variances of
k1 and k3 for Gaussians of unit variance, which cross where k3 stops being the better estimate.
"""

import numpy as np
import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

REWARDS = torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
REFERENCE = torch.tensor([0.35, 0.25, 0.2, 0.1, 0.07, 0.03])
WEIGHT = 0.5
GROUP, GROUPS, VERSIONS, RATE = 8, 32, 600, 0.02
DRAWS = 200_000


def best() -> torch.Tensor:
    """Return the policy that reward minus weight times KL is largest for, [A]."""
    return (REFERENCE.log() + REWARDS / WEIGHT).softmax(-1)


def run(arm: str, seed: int) -> Outcome:
    """Train one policy with k1 in the reward, as a loss, or without it."""
    policy, config = Table(REFERENCE.log()[None], rate=RATE, seed=seed), PolicyConfig(tokens_per_session=1.0)
    away, divergence = [], []
    for _ in range(VERSIONS):
        choices = policy.draw(torch.zeros(GROUP * GROUPS, dtype=torch.long))
        k1 = choices.logprobs_N - REFERENCE.log()[choices.actions_N]
        rewards = REWARDS[choices.actions_N] - (WEIGHT * k1 if arm == IN_REWARD else 0.0)
        advantages = torch.tensor(
            [each for group in rewards.split(GROUP) for each in above_the_others(group.tolist())]
        )
        if arm == AS_LOSS:
            logprobs = policy.logprobs(choices)
            policy.step(((WEIGHT - advantages) * logprobs).mean())
        else:
            policy.learn(choices, advantages, sessions=len(choices), config=config)
        present = policy.probabilities()[0]
        away.append(float((present - best()).abs().sum() / 2))
        divergence.append(float((present * (present.log() - REFERENCE.log())).sum()))
    figures = {"distance from the best": away[-1], "KL from the reference": divergence[-1]}
    if arm == IN_REWARD:
        figures[CROSSING] = crossover(seed)
    curves = {"distance from the best policy": away, "KL from the reference, nats": divergence}
    return Outcome(figures=figures, curves=curves)


def crossover(seed: int) -> float:
    """Return the divergence of two unit Gaussians at which the sampled variances of k1 and k3 cross."""
    draws = np.random.default_rng(seed).standard_normal(DRAWS)
    shifts = np.linspace(0.9, 1.3, 41)
    apart = []
    for shift in shifts:
        log_ratio = shift * draws - shift**2 / 2
        apart.append(np.var(np.expm1(log_ratio) - log_ratio) - np.var(log_ratio))
    return float(shifts[int(np.argmax(np.array(apart) > 0))] ** 2 / 2)


CROSSING = "KL where k1 becomes better than k3"
IN_REWARD, AS_LOSS, WITHOUT = "k1 in the reward", "k1 as a loss", "without"
STUDY = Study(
    name="k1",
    question="where does k1 have to stand to keep a policy near its reference?",
    shrunk="a bandit of six actions stands for the model",
    arms=(IN_REWARD, AS_LOSS, WITHOUT),
    run=run,
    claims=(
        Claim(
            text="in the reward: within 0.05 of the best policy (total variation)",
            holds=lambda found: found[IN_REWARD]["distance from the best"].high < 0.05,
        ),
        Claim(
            text="as a loss: as far from the reference as without it (KL within 5 %)",
            holds=lambda found: (
                abs(
                    found[AS_LOSS]["KL from the reference"].estimate
                    / found[WITHOUT]["KL from the reference"].estimate
                    - 1
                )
                < 0.05
            ),
        ),
        Claim(
            text="k1 has the smaller variance above a KL of 0.628 (found within 0.05 of it)",
            holds=lambda found: (
                abs(found[IN_REWARD]["KL where k1 becomes better than k3"].estimate - 0.628) < 0.05
            ),
        ),
    ),
)
