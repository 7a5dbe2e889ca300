"""One optimizer step of the policy gradient, and one of imitation, on any `Trainable`.

Shapes: N counted tokens of a piece.
"""
# ruff: noqa: N803, N806

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.train.base import Trainable
from ostinato.train.batch import Row, ScoredRow, with_routes
from ostinato.train.config import PolicyConfig
from ostinato.train.losses import importance, next_token_loss, policy_gradient_loss
from ostinato.types import Sample

NEGLIGIBLE = 1e-6
"""A row with a smaller advantage has no gradient worth a forward pass."""
LARGEST_SUPERVISED = 1.0
"""The norm to which the gradient of imitation is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The figures of one step; `ratio` is the mean of pi / mu before the cap, `capped` the share above it."""

    loss: float
    gradient: float
    ratio: float
    capped: float
    rows: int
    tokens: int
    """Sampled tokens that had a gradient."""
    routes_recorded: float = 0.0
    """The share of choices of an expert that were recorded, in passes that replayed any."""
    routes_differing: float = 0.0
    """The share of recorded experts that the model would not have chosen itself."""
    routes_replaced: float = 0.0
    """The share of recorded experts that scored too low, so that the model's own choice took their place."""


def policy_step(
    model: Trainable, samples: Sequence[Sample], sessions: int, rate: float, config: PolicyConfig
) -> StepStats:
    """Change the weights by one step on all of `samples`; without any advantage they stay as they are.

    `sessions` counts those without an advantage too, so that they dilute the step instead of vanishing.
    """
    useful = [sample for sample in samples if abs(sample.advantage) >= NEGLIGIBLE]
    if not useful:
        return StepStats(loss=0.0, gradient=0.0, ratio=1.0, capped=0.0, rows=0, tokens=0)
    constant, ratios = sessions * config.tokens_per_session, list[Tensor]()

    def loss(numbers: Sequence[int], logprobs_N: Tensor) -> Tensor:
        part, ratios_N = sample_loss([useful[i] for i in numbers], logprobs_N, constant, config)
        ratios.append(ratios_N.cpu())
        return part

    total = model.accumulate(
        [with_routes(scored(sample), sample, model.router, config) for sample in useful], loss
    )
    gradient = model.update(rate, config.largest_gradient)
    all_ratios = model.gathered(torch.cat(ratios) if ratios else torch.empty(0))
    return StepStats(
        loss=total,
        gradient=gradient,
        ratio=float(all_ratios.mean()),
        capped=float((all_ratios > config.ratio_cap).float().mean()),
        rows=len(useful),
        tokens=len(all_ratios),
        **model.replayed().shares,
    )


def scored(sample: Sample) -> ScoredRow:
    """Return a sample's row: each sampled token is scored at the temperature it was sampled at."""
    return ScoredRow(ids=sample.ids, counted=sample.mask, temperatures=sample.temperatures)


def sample_loss(
    samples: Sequence[Sample], logprobs_N: Tensor, constant: float, config: PolicyConfig
) -> tuple[Tensor, Tensor]:
    """Return the samples' share of the loss, and pi / mu of their tokens before the cap, [N]."""
    behaviour = [x for sample in samples for x in _sampled(sample, sample.logprobs)]
    advantages = [sample.advantage for sample in samples for _ in _sampled(sample, sample.ids)]
    behaviour_N = torch.tensor(behaviour, device=logprobs_N.device)
    advantages_N = torch.tensor(advantages, device=logprobs_N.device)
    ratios_N = importance(logprobs_N, behaviour_N, config.ratio_cap)
    loss = policy_gradient_loss(logprobs_N, ratios_N, advantages_N, constant)
    return loss, (logprobs_N.detach() - behaviour_N).exp()


def _sampled(sample: Sample, values: Sequence[float]) -> list[float]:
    """Return the values of the sampled tokens; the first one of a row cannot be predicted."""
    pairs = zip(values[1:], sample.mask[1:], strict=True)
    return [value for value, sampled in pairs if sampled]


def supervised_step(model: Trainable, rows: Sequence[Row], rate: float) -> float:
    """Take one step on the weighted next-token loss of `rows`; return the loss in nats per unit of weight."""
    total = sum(weight for row in rows for weight in row.counted_weights)

    def loss(numbers: Sequence[int], logprobs_N: Tensor) -> Tensor:
        weights = [weight for i in numbers for weight in rows[i].counted_weights]
        return next_token_loss(logprobs_N, torch.tensor(weights, device=logprobs_N.device), total)

    value = model.accumulate([row.scored for row in rows], loss)
    model.update(rate, LARGEST_SUPERVISED)
    return value
