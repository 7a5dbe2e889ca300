"""Covers train/losses.py: what tokens are worth under logits, and the loss of imitation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.losses import next_token_loss, policy_gradient_loss, token_entropies, token_logprobs


@given(st.lists(st.floats(-4, 4), min_size=2, max_size=6), st.floats(0.2, 3))
def test_the_entropy_is_that_of_the_tempered_distribution(logits: list[float], temperature: float) -> None:
    """The sum over all tokens of -p log p, from the log-probabilities themselves."""
    table = torch.tensor([logits], dtype=torch.float64).repeat(len(logits), 1)
    heat = torch.full((len(logits),), temperature, dtype=torch.float64)
    logprobs = token_logprobs(table, torch.arange(len(logits)), heat)
    found = token_entropies(table, heat)
    torch.testing.assert_close(found, (-(logprobs.exp() * logprobs).sum()).expand(len(logits)))


def test_an_impossible_token_adds_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf]])
    assert token_entropies(logits).item() == pytest.approx(0.6931472)


def test_next_token_loss_is_the_weighted_mean() -> None:
    logprobs, weights = torch.tensor([-1.0, -3.0, -5.0]), torch.tensor([1.0, 0.3, 0.0])
    assert next_token_loss(logprobs, weights, 1.3).item() == pytest.approx((1.0 + 0.9) / 1.3)


def test_gradient_is_reinforce_by_hand() -> None:
    """d/dz of -A log softmax(z)[a] / c is A (softmax(z) - onehot(a)) / c."""
    logits = torch.tensor([[0.3, -1.0, 0.8], [1.5, 0.0, -0.5]], requires_grad=True)
    actions, advantages = torch.tensor([2, 0]), torch.tensor([0.75, -0.25])
    logprobs = token_logprobs(logits, actions)
    policy_gradient_loss(logprobs, torch.ones(2), advantages, 6.0).backward()
    by_hand = [
        [a * (math.exp(z) / sum(map(math.exp, row)) - (i == action)) / 6.0 for i, z in enumerate(row)]
        for row, action, a in zip(logits.tolist(), actions.tolist(), advantages.tolist(), strict=True)
    ]
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor(by_hand))


def test_the_weight_scales_the_gradient_and_has_none_itself() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    weights = (logprobs - torch.tensor([-1.5, -1.0])).exp()
    policy_gradient_loss(logprobs, weights, torch.ones(2), 1.0).backward()
    assert logprobs.grad is not None
    torch.testing.assert_close(-logprobs.grad, torch.tensor([math.exp(0.5), math.exp(-1.0)]))


def test_the_loss_adds_up_over_rows_whatever_their_lengths() -> None:
    logprobs, advantages = -torch.rand(10), torch.randn(10)
    whole = policy_gradient_loss(logprobs, torch.ones(10), advantages, 60.0)
    parts = [
        policy_gradient_loss(logprobs[cut], torch.ones(len(logprobs[cut])), advantages[cut], 60.0)
        for cut in (slice(0, 2), slice(2, 9), slice(9, 10))
    ]
    torch.testing.assert_close(sum(parts), whole)
