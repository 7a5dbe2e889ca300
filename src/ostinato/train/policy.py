"""One optimizer step of the policy gradient, and one of imitation, on any `Trainable`.

Shapes: N counted tokens of a piece.
"""
# ruff: noqa: N803, N806, N815

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ostinato.train.base import StepError, StepStats, Trainable
from ostinato.train.batch import Row, ScoredRow, Scores, with_routes
from ostinato.train.config import PolicyConfig
from ostinato.train.figures.measures import measured
from ostinato.train.losses import next_token_loss
from ostinato.train.objective.corrections import Correction, correction_of
from ostinato.train.objective.group import BASELINES
from ostinato.train.objective.k1 import k1_advantages, mean_k1
from ostinato.train.objective.loss import policy_gradient_loss
from ostinato.types import Group, Sample

NEGLIGIBLE = 1e-6
"""A row with a smaller advantage has no gradient worth a forward pass."""
LARGEST_SUPERVISED = 1.0
"""The norm to which the gradient of imitation is cut."""


class SampleLoss(NamedTuple):
    """The loss of some samples; of each of their trained tokens log pi - log mu, and if it was cut."""

    loss: Tensor
    deltas_N: Tensor
    cut_N: Tensor


def policy_step(
    model: Trainable, groups: Sequence[Group], rate: float, config: PolicyConfig, *, version: int
) -> StepStats:
    """Change the weights, those of `version`, by one step on all groups; without any advantage they stay.

    The loss is divided by the number of sessions, those without an advantage too, so that they dilute the
    step instead of vanishing. Raises StepError, and changes nothing, for a gradient that is not finite and
    for a row that is longer than the model's context.
    """
    samples = [sample for group in groups for sample in group.samples]
    check_context(model, [(f"session {each.session_id}", len(each.ids)) for each in samples])
    k1_of = session_k1(model, groups) if config.k1 else {}
    if config.k1:
        samples = penalised(samples, groups, k1_of, config)
    sessions = sum(len(group.rewards) for group in groups)
    stats = advantage_step(model, samples, sessions, rate, config, version=version)
    return replace(stats, k1=mean_k1(groups, k1_of) if config.k1 else None)


def check_context(model: Trainable, lengths: Sequence[tuple[str, int]]) -> None:
    """Raise StepError for a row, given by its name and length, that the model has no positions for."""
    for name, length in lengths:
        if length > model.context:
            raise StepError(
                f"{name} is a row of {length} tokens, and the model has {model.context} positions: let the "
                "engine's max_len be at most that, so that no session grows longer"
            )


def session_k1(model: Trainable, groups: Sequence[Group]) -> dict[str, float]:
    """Return the sum of log pi - log pi_reference over the trained tokens of each session, in nats."""
    samples = [sample for group in groups for sample in group.samples]
    rows = [scored(sample) for sample in samples]
    own, reference = model.logprobs(rows), model.reference_logprobs(rows)
    k1_of: dict[str, float] = {}
    for sample, mine, its in zip(samples, own, reference, strict=True):
        k1 = float((mine.double() - its.double()).sum())
        k1_of[sample.session_id] = k1_of.get(sample.session_id, 0.0) + k1
    return k1_of


def penalised(
    samples: Sequence[Sample], groups: Sequence[Group], k1_of: Mapping[str, float], config: PolicyConfig
) -> list[Sample]:
    """Return the samples with the advantages of a reward less k1, weighted."""
    advantages = k1_advantages(groups, k1_of, BASELINES[config.baseline])
    return [
        replace(sample, advantage=sample.advantage - config.k1 * advantages[sample.session_id])
        for sample in samples
    ]


def advantage_step(
    model: Trainable,
    samples: Sequence[Sample],
    sessions: int,
    rate: float,
    config: PolicyConfig,
    *,
    version: int,
) -> StepStats:
    """Take one step on samples by their advantages; `sessions` is what the loss is divided by."""
    useful = [sample for sample in samples if abs(sample.advantage) >= NEGLIGIBLE]
    if not useful:
        return StepStats()
    constant, correct, tokens = sessions * config.tokens_per_session, correction_of(config), list[Tensor]()

    def loss(numbers: Sequence[int], scores: Scores) -> Tensor:
        some = [useful[i] for i in numbers]
        part, deltas_N, cut_N = sample_loss(some, scores.logprobs_N, constant, correct)
        gaps_N = torch.tensor([version - each for one in some for each in _sampled(one, one.versions)])
        columns = deltas_N.double().cpu(), cut_N.cpu(), gaps_N, scores.entropies_N.cpu()
        tokens.append(torch.stack([column.double() for column in columns], 1))
        return part

    total = model.accumulate(
        [with_routes(scored(sample), sample, model.router, config) for sample in useful], loss
    )
    gradient = model.update(rate, config.largest_gradient)
    table = model.gathered(torch.cat(tokens) if tokens else torch.empty(0, 4, dtype=torch.float64))
    shares = model.replayed().shares
    return replace(
        measured(table),
        loss=total,
        gradient=gradient,
        rows=len(useful),
        routes_recorded=shares["routes_recorded"],
        routes_differing=shares["routes_differing"],
        routes_replaced=shares["routes_replaced"],
    )


def scored(sample: Sample) -> ScoredRow:
    """Return a sample's row: each sampled token is scored at the temperature it was sampled at."""
    return ScoredRow(ids=sample.ids, counted=sample.mask, temperatures=sample.temperatures)


def sample_loss(
    samples: Sequence[Sample], logprobs_N: Tensor, constant: float, correct: Correction
) -> SampleLoss:
    """Return the samples' share of the loss, and what it was made of."""
    behaviour = [x for sample in samples for x in _sampled(sample, sample.logprobs)]
    advantages = [sample.advantage for sample in samples for _ in _sampled(sample, sample.ids)]
    rows = [i for i, sample in enumerate(samples) for _ in _sampled(sample, sample.ids)]
    device = logprobs_N.device
    deltas_N = logprobs_N.detach() - torch.tensor(behaviour, device=device)
    weights_N, cut_N = correct(deltas_N, torch.tensor(rows, device=device))
    loss = policy_gradient_loss(logprobs_N, weights_N, torch.tensor(advantages, device=device), constant)
    return SampleLoss(loss, deltas_N, cut_N)


def _sampled(sample: Sample, values: Sequence[float]) -> list[float]:
    """Return the values of the sampled tokens; the first one of a row cannot be predicted."""
    pairs = zip(values[1:], sample.mask[1:], strict=True)
    return [value for value, sampled in pairs if sampled]


def supervised_step(model: Trainable, rows: Sequence[Row], rate: float) -> float:
    """Take one step on the weighted next-token loss of `rows`; return the loss in nats per unit of weight."""
    check_context(model, [(f"session {row.session_id}", row.length) for row in rows])
    total = sum(weight for row in rows for weight in row.counted_weights)

    def loss(numbers: Sequence[int], scores: Scores) -> Tensor:
        weights = [weight for i in numbers for weight in rows[i].counted_weights]
        weights_N = torch.tensor(weights, device=scores.logprobs_N.device)
        return next_token_loss(scores.logprobs_N, weights_N, total)

    value = model.accumulate([row.scored for row in rows], loss)
    model.update(rate, LARGEST_SUPERVISED)
    return value
