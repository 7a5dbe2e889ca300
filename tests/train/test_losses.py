"""Covers train/losses.py: what tokens are worth under logits, and the loss of imitation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.losses import next_token_loss, token_entropies, token_logprobs


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
