import math

import pytest
import torch

from ostinato.train.losses import importance, next_token_loss, policy_gradient_loss, token_logprobs


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


def test_the_ratio_weighs_the_gradient_and_has_none_itself() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    ratios = importance(logprobs, torch.tensor([-1.5, -1.0]), 2.0)
    policy_gradient_loss(logprobs, ratios, torch.ones(2), 1.0).backward()
    assert not ratios.requires_grad and logprobs.grad is not None
    torch.testing.assert_close(-logprobs.grad, torch.tensor([math.exp(0.5), math.exp(-1.0)]))


def test_the_ratio_is_one_on_policy_and_never_above_the_cap() -> None:
    logprobs = torch.tensor([-1.0, -0.1])
    torch.testing.assert_close(importance(logprobs, logprobs, 2.0), torch.ones(2))
    assert importance(logprobs, torch.tensor([-9.0, -9.0]), 2.0).tolist() == [2.0, 2.0]


def test_the_truncated_ratio_is_unbiased_below_the_cap() -> None:
    """Sum over actions of mu(a) * ratio(a) * A(a) is the expectation under pi."""
    pi, mu = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.35, 0.25])
    advantages = torch.tensor([1.0, -2.0, 0.5])
    ratios = importance(pi.log(), mu.log(), 2.0)
    assert (mu * ratios * advantages).sum().item() == pytest.approx((pi * advantages).sum().item(), abs=1e-6)


def test_the_loss_adds_up_over_rows_whatever_their_lengths() -> None:
    logprobs, advantages = -torch.rand(10), torch.randn(10)
    whole = policy_gradient_loss(logprobs, torch.ones(10), advantages, 60.0)
    parts = [
        policy_gradient_loss(logprobs[cut], torch.ones(len(logprobs[cut])), advantages[cut], 60.0)
        for cut in (slice(0, 2), slice(2, 9), slice(9, 10))
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_next_token_loss_is_the_weighted_mean() -> None:
    logprobs, weights = torch.tensor([-1.0, -3.0, -5.0]), torch.tensor([1.0, 0.3, 0.0])
    assert next_token_loss(logprobs, weights, 1.3).item() == pytest.approx((1.0 + 0.9) / 1.3)
