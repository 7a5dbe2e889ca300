"""Covers train/objective/loss.py: the loss of the policy gradient, ours and that of a plug-in."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ostinato.extend import PluginError
from ostinato.train.config import LOSSES, PolicyConfig
from ostinato.train.losses import token_logprobs
from ostinato.train.objective.loss import SampledTokens, loss, loss_of


def tokens(logprobs: Tensor, advantages: Tensor, deltas: Tensor | float = 0.0) -> SampledTokens:
    """Tokens of one row, whose log pi lies `deltas` above log mu."""
    rows = torch.zeros(len(logprobs), dtype=torch.long)
    return SampledTokens(
        logprobs_N=logprobs, sampler_N=logprobs.detach() - deltas, advantages_N=advantages, rows_N=rows
    )


def total(of: SampledTokens, **settings: str) -> Tensor:
    return loss_of(PolicyConfig(**settings))(of)[0].sum()  # type: ignore[arg-type]


def test_the_gradient_is_reinforce_by_hand() -> None:
    """d/dz of -A log softmax(z)[a] is A (softmax(z) - onehot(a))."""
    logits = torch.tensor([[0.3, -1.0, 0.8], [1.5, 0.0, -0.5]], requires_grad=True)
    actions, advantages = torch.tensor([2, 0]), torch.tensor([0.75, -0.25])
    total(tokens(token_logprobs(logits, actions), advantages)).backward()  # type: ignore[no-untyped-call]
    by_hand = [
        [a * (math.exp(z) / sum(map(math.exp, row)) - (i == action)) for i, z in enumerate(row)]
        for row, action, a in zip(logits.tolist(), actions.tolist(), advantages.tolist(), strict=True)
    ]
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor(by_hand))


def test_the_weight_scales_the_gradient_and_has_none_itself() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    total(tokens(logprobs, torch.ones(2), torch.tensor([0.5, -1.0]))).backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    torch.testing.assert_close(-logprobs.grad, torch.tensor([math.exp(0.5), math.exp(-1.0)]))


@pytest.fixture
def added() -> Iterator[None]:
    """Losses of this file are gone after the test."""
    yield
    for name in [name for name in LOSSES if name != "weighted"]:
        LOSSES._forget(LOSSES.plugin(name))


@pytest.mark.usefixtures("added")
def test_a_loss_of_a_plugin_has_a_value_on_each_token_or_is_refused_by_its_name() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    some = tokens(logprobs, torch.ones(2))
    none = torch.zeros(2, dtype=torch.bool)

    @loss("whole")
    def whole(of: SampledTokens) -> tuple[Tensor, Tensor]:
        return of.logprobs_N.sum(), none

    @loss("constant")
    def constant(of: SampledTokens) -> tuple[Tensor, Tensor]:
        return of.sampler_N, none

    @loss("broken")
    def broken(of: SampledTokens) -> tuple[Tensor, Tensor]:
        raise KeyError("gone")

    @loss("mine")
    def mine(of: SampledTokens) -> tuple[Tensor, Tensor]:
        return -3 * of.logprobs_N, none

    assert total(some, loss="mine").item() == 9.0
    for name in ("whole", "constant"):
        with pytest.raises(PluginError, match=f"the loss {name} returned .* return the loss of each"):
            total(some, loss=name)
    with pytest.raises(PluginError, match=r"the loss broken failed at .*test_loss.py line \d+, KeyError"):
        total(some, loss="broken")
    with pytest.raises(ValueError, match="correction is set and the loss is mine: only weighted has it"):
        PolicyConfig(loss="mine", correction="none")
    with pytest.raises(ValueError, match="loss is 'his': use weighted, whole"):
        PolicyConfig(loss="his")
