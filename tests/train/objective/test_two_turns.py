"""Every advantage and every correction on a policy of two turns, all outcomes added up.

On-policy each has the exact gradient of the expected reward, up to a stated scalar; off-policy each has
exactly the bias that its formula says.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.objective.two_turns import OUTCOMES, Outcome, TwoTurns, table
from torch import Tensor

from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_mean, above_the_others
from ostinato.train.objective.influence import person_advantages
from ostinato.train.objective.k1 import k1_advantages


def of_strangers(rewards: Sequence[float]) -> list[float]:
    """Return the advantages of sessions that have a person each, and one stratum."""
    count = len(rewards)
    return person_advantages(rewards, [*map(str, range(count))], ["one"] * count, np.ones(count)).tolist()


CORRECTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "truncated": {"ratio_cap": 1.3},
    "icepop": {"ratio_low": 0.7, "ratio_high": 1.4},
    "sequence": {"ratio_cap": 1.3},
}
CREDITS = {
    "others": (above_the_others, lambda size: 1.0),
    "group": (above_the_mean, lambda size: 1 - 1 / size),
    "people": (of_strangers, lambda size: 1.0),
}
Credit = Callable[[list[float]], list[float]]


def config(correction: str) -> PolicyConfig:
    return PolicyConfig(correction=correction, **CORRECTIONS[correction])  # type: ignore[arg-type]


def close(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("credit", CREDITS)
def test_on_policy_the_expected_gradient_is_exact(credit: str, correction: str, size: int) -> None:
    """The stated scalar is 1, and 1 - 1/G for the mean of the whole group."""
    world = TwoTurns()
    advantages, scalar = CREDITS[credit]
    exact = world.gradient(world.value())
    assert exact.abs().max() > 0.05
    found = world.expected(size, lambda group: advantages([*map(world.reward, group)]), config(correction))
    close(found, scalar(size) * exact)


def by_formula(world: TwoTurns, weight: Callable[[Tensor], Tensor], rewards: dict[Outcome, float]) -> Tensor:
    """Sum over outcomes of mu (R - E_mu R) sum_t w_t grad log pi_t: groups do not occur in it."""
    chances = {each: world.chance(world.sampler, each) for each in OUTCOMES}
    mean = sum(float(chances[each]) * rewards[each] for each in OUTCOMES)
    total = torch.zeros((), dtype=torch.float64)
    for each in OUTCOMES:
        logprobs, drawn = world.logprobs(world.logits, each), world.logprobs(world.sampler, each)
        ratios = (logprobs - drawn).exp().detach()
        total = total + chances[each] * (rewards[each] - mean) * (weight(ratios) * logprobs).sum()
    return world.gradient(total)


FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": torch.ones_like,
    "truncated": lambda r: r.clamp(max=1.3),
    "icepop": lambda r: r * ((r >= 0.7) & (r <= 1.4)),
    "sequence": lambda r: r.log().mean().exp().clamp(max=1.3).expand(2),
}


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_off_policy_the_bias_is_the_one_of_its_formula(correction: str) -> None:
    """The stated bias: the others' mean is E_mu R, and each token counts as its weight says, no more."""
    world = TwoTurns(sampler=table(0) + 0.5 * table(3))
    rewards = {each: world.reward(each) for each in OUTCOMES}
    found = world.expected(2, lambda group: above_the_others([*map(world.reward, group)]), config(correction))
    close(found, by_formula(world, FORMULAS[correction], rewards))
    exact = world.gradient(world.value())
    assert (found - exact).abs().max() > 1e-3, "this sampler is too near for the bias to show"


def test_the_product_of_ratios_alone_has_no_bias_off_policy() -> None:
    """The yardstick of the test above: with the exact weight of a session the formula is the gradient."""
    world = TwoTurns(sampler=table(0) + 0.5 * table(3))
    value = float(world.value().detach())
    rewards = {each: world.reward(each) for each in OUTCOMES}
    chances = {each: float(world.chance(world.sampler, each)) for each in OUTCOMES}
    mean = sum(chances[each] * rewards[each] for each in OUTCOMES)
    found = by_formula(world, lambda r: r.prod().expand(2), rewards)
    assert abs(mean - value) > 0.01
    close(found, world.gradient(world.value()))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("credit", ["others", "group"])
def test_k1_in_the_reward_has_the_gradient_of_the_divergence(credit: str, size: int) -> None:
    """On-policy: E[R] - weight · KL(pi | reference), by the advantages that the trainer computes."""
    world, weight = TwoTurns(), 0.7
    baseline, scalar = CREDITS[credit]

    def less(outcomes: Sequence[Outcome]) -> list[float]:
        advantages = baseline([*map(world.reward, outcomes)])
        k1_of = {f"s{i}": world.k1(each) for i, each in enumerate(outcomes)}
        of_k1 = k1_advantages([world.recorded(outcomes, advantages)], k1_of, baseline)
        return [each - weight * of_k1[f"s{i}"] for i, each in enumerate(advantages)]

    exact = world.gradient(world.value() - weight * world.divergence())
    close(world.expected(size, less, config("truncated")), scalar(size) * exact)
    assert (exact - world.gradient(world.value())).abs().max() > 0.05


def test_k1_as_a_loss_has_no_expected_gradient() -> None:
    """Differentiated, log pi - log pi_reference gives the mean of grad log pi, which is 0."""
    world = TwoTurns()
    total = torch.zeros((), dtype=torch.float64)
    for each in OUTCOMES:
        k1 = (world.logprobs(world.logits, each) - world.logprobs(world.reference, each)).sum()
        total = total + world.chance(world.logits, each).detach() * k1
    assert world.gradient(total).abs().max() < 1e-12
    assert world.gradient(world.divergence()).abs().max() > 0.05
