"""One optimizer step of the policy gradient, and one of imitation, on any `Trainable`.

Shapes: N counted tokens of a piece.
"""
# ruff: noqa: N803, N806, N815

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ostinato.model.decoder import Decoder
from ostinato.model.replay import RoutesError
from ostinato.train.base import (
    BEYOND_CONTEXT,
    NO_GRADIENT,
    OTHER_ROUTES,
    NotFiniteError,
    StepError,
    StepStats,
    Trainable,
)
from ostinato.train.batch import (
    Row,
    ScoredRow,
    Scores,
    by_length,
    check_routes,
    counted_scores,
    with_routes,
)
from ostinato.train.config import PolicyConfig
from ostinato.train.figures.measures import measured
from ostinato.train.losses import next_token_loss
from ostinato.train.objective.group import baseline_of
from ostinato.train.objective.k1 import k1_advantages, mean_k1
from ostinato.train.objective.loss import Loss, SampledTokens, loss_of
from ostinato.types import Group, Sample

log = logging.getLogger(__name__)
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
    step instead of vanishing. A group is left out, with its reason in `dropped`, when this model cannot score
    it (see `unfit`), and when its gradient is not finite. The rest is trained as if it had not been there.
    Raises RoutesError for routes that the trainer could replay for no group, since it knows no router.
    """
    dropped = unfit(model, groups, config)
    while sound := [group for group in groups if group.id not in dropped]:
        k1_of = session_k1(model, sound, config) if config.k1 else {}
        if endless := [group.id for group in sound if not math.isfinite(_total(group, k1_of))]:
            dropped |= dict.fromkeys(endless, NO_GRADIENT)
            continue
        samples = penalised(sound, k1_of, config) if config.k1 else [group.samples for group in sound]
        sessions = sum(len(group.rewards) for group in sound)
        every = [sample for some in samples for sample in some]
        try:
            stats = advantage_step(model, every, sessions, rate, config, version=version)
        except NotFiniteError:
            worse = _without_gradient(model, samples, sessions, config)
            dropped |= {sound[i].id: NO_GRADIENT for i in worse}
            continue
        return replace(stats, k1=mean_k1(sound, k1_of) if config.k1 else None, dropped=dropped)
    return StepStats(dropped=dropped)


def unfit(model: Trainable, groups: Sequence[Group], config: PolicyConfig) -> dict[str, str]:
    """Return the groups that the model cannot score, with the reason.

    One of their rows is longer than its positions, or has routes that its routers cannot have chosen.
    """
    found = {}
    for group in groups:
        if max(len(sample.ids) for sample in group.samples) > model.context:
            found[group.id] = BEYOND_CONTEXT
        elif model.router is not None:
            try:
                for sample in group.samples:
                    check_routes(sample, model.router, config)
            except RoutesError as error:
                log.warning("group %s: %s", group.id, error)
                found[group.id] = OTHER_ROUTES
    return found


def _total(group: Group, k1_of: Mapping[str, float]) -> float:
    return sum(k1_of.get(sample.session_id, 0.0) for sample in group.samples)


def _without_gradient(
    model: Trainable, samples: Sequence[Sequence[Sample]], sessions: int, config: PolicyConfig
) -> list[int]:
    """Return the numbers of the groups, given by their samples, whose own gradient is not finite.

    All of them when each one's is and only their sum is not.
    """
    found = []
    for i, some in enumerate(samples):
        if useful := with_advantage(some):
            loss = PolicyLoss(useful, sessions, config)
            model.accumulate(rows_of(model, useful, config), loss)
            found += [] if model.discard() else [i]
    return found or list(range(len(samples)))


def check_context(model: Trainable, rows: Sequence[Row]) -> None:
    """Raise StepError for a row that the model has no positions for."""
    for row in rows:
        if row.length > model.context:
            raise StepError(
                f"session {row.session_id} is a row of {row.length} tokens, and the model has "
                f"{model.context} positions: let the engine's max_len be at most that, so that no session "
                "grows longer"
            )


def session_k1(model: Trainable, groups: Sequence[Group], config: PolicyConfig) -> dict[str, float]:
    """Return the sum of log pi - log pi_reference over the trained tokens of each session, in nats.

    Both are scored with the routes that the step replays. So pi is the function that the step changes, and
    equal weights have a k1 of 0 whatever the engine chose; with experts of their own the two would also
    differ by what rounding decides in their routers. Experts that only one of them would choose are replayed
    in both: k1 is the divergence given the choice of experts, not that of two routers.
    """
    samples = [sample for group in groups for sample in group.samples]
    rows = rows_of(model, samples, config)
    own, reference = model.logprobs(rows), model.reference_logprobs(rows)
    k1_of: dict[str, float] = {}
    for sample, mine, its in zip(samples, own, reference, strict=True):
        k1 = float((mine.double() - its.double()).sum())
        k1_of[sample.session_id] = k1_of.get(sample.session_id, 0.0) + k1
    return k1_of


def penalised(
    groups: Sequence[Group], k1_of: Mapping[str, float], config: PolicyConfig
) -> list[list[Sample]]:
    """Return the samples of each group with the advantages of a reward less k1, weighted."""
    advantages = k1_advantages(groups, k1_of, baseline_of(config.baseline))
    return [
        [
            replace(sample, advantage=sample.advantage - config.k1 * advantages[sample.session_id])
            for sample in group.samples
        ]
        for group in groups
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
    """Take one step on samples, which `unfit` has let pass, by their advantages; `sessions` is what the loss
    is divided by.

    Raises NotFiniteError, and changes nothing, for a gradient that is not finite.
    """
    useful = with_advantage(samples)
    if not useful:
        return StepStats()
    loss = PolicyLoss(useful, sessions, config, version=version)
    total = model.accumulate(rows_of(model, useful, config), loss)
    gradient = model.update(rate, config.largest_gradient)
    shares = model.replayed().shares
    return replace(
        measured(model.gathered(loss.table)),
        loss=total,
        gradient=gradient,
        rows=len(useful),
        routes_recorded=shares["routes_recorded"],
        routes_differing=shares["routes_differing"],
        routes_replaced=shares["routes_replaced"],
    )


def with_advantage(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples that are worth a forward pass."""
    return [sample for sample in samples if abs(sample.advantage) >= NEGLIGIBLE]


def rows_of(model: Trainable, samples: Sequence[Sample], config: PolicyConfig) -> list[ScoredRow]:
    """Return the rows of samples with the routes to replay. RoutesError: see `with_routes`."""
    return [with_routes(scored(sample), sample, model.router, config) for sample in samples]


class PolicyLoss:
    """The `PieceLoss` of samples; it keeps what is measured of the tokens that it is given.

    The loss is divided by `sessions` and a constant; `version` is that of the present weights.
    """

    def __init__(
        self, samples: Sequence[Sample], sessions: int, config: PolicyConfig, *, version: int = 0
    ) -> None:
        self._samples, self._version = samples, version
        self._constant, self._loss = sessions * config.tokens_per_session, loss_of(config)
        self._tables = list[Tensor]()

    def __call__(self, numbers: Sequence[int], scores: Scores) -> Tensor:
        some = [self._samples[i] for i in numbers]
        part, deltas_N, cut_N = sample_loss(some, scores.logprobs_N, self._constant, self._loss)
        gaps_N = torch.tensor([self._version - each for one in some for each in _sampled(one, one.versions)])
        columns = deltas_N.double().cpu(), cut_N.cpu(), gaps_N, scores.entropies_N.cpu()
        self._tables.append(torch.stack([column.double() for column in columns], 1))
        return part

    @property
    def table(self) -> Tensor:
        """The tokens so far, [N, 4]: log pi - log mu, if it was cut, how many versions old, entropy."""
        return torch.cat(self._tables) if self._tables else torch.empty(0, 4, dtype=torch.float64)


def scored(sample: Sample) -> ScoredRow:
    """Return a sample's row: each sampled token is scored at the temperature it was sampled at."""
    return ScoredRow(ids=sample.ids, counted=sample.mask, temperatures=sample.temperatures)


@torch.no_grad()
def log_ratios(decoder: Decoder, samples: Sequence[Sample], *, piece_tokens: int = 3072) -> dict[str, float]:
    """Return by session the logarithm of the decoder's chance of all sampled tokens over their own chance.

    `samples` are all rows of the sessions; pieces of them have at most `piece_tokens` with padding.
    """
    rows = [scored(sample) for sample in samples]
    found: dict[str, float] = {}
    for piece in by_length([len(row.ids) for row in rows], piece_tokens):
        counts = [len(rows[i].places) for i in piece]
        parts = counted_scores(decoder, [rows[i] for i in piece]).logprobs_N.double().split_with_sizes(counts)
        for i, part in zip(piece, parts, strict=True):
            sample = samples[i]
            ratio = float(part.sum()) - sum(_sampled(sample, sample.logprobs))
            found[sample.session_id] = found.get(sample.session_id, 0.0) + ratio
    return found


def sample_loss(samples: Sequence[Sample], logprobs_N: Tensor, constant: float, loss: Loss) -> SampleLoss:
    """Return the samples' share of the loss, and what it was made of.

    `constant` depends neither on lengths nor on which rows are here, so the losses (and gradients) of parts
    of a batch add up to those of the whole, and a long answer is not discounted.
    """
    behaviour = [x for sample in samples for x in _sampled(sample, sample.logprobs)]
    advantages = [sample.advantage for sample in samples for _ in _sampled(sample, sample.ids)]
    rows = [i for i, sample in enumerate(samples) for _ in _sampled(sample, sample.ids)]
    device = logprobs_N.device
    tokens = SampledTokens(
        logprobs_N=logprobs_N,
        sampler_N=torch.tensor(behaviour, device=device),
        advantages_N=torch.tensor(advantages, device=device),
        rows_N=torch.tensor(rows, device=device),
    )
    losses_N, cut_N = loss(tokens)
    return SampleLoss(losses_N.sum() / constant, tokens.deltas_N, cut_N)


def _sampled(sample: Sample, values: Sequence[float]) -> list[float]:
    """Return the values of the sampled tokens; the first one of a row cannot be predicted."""
    pairs = zip(values[1:], sample.mask[1:], strict=True)
    return [value for value, sampled in pairs if sampled]


def supervised_step(model: Trainable, rows: Sequence[Row], rate: float) -> float:
    """Take one step on the weighted next-token loss of `rows`; return the loss in nats per unit of weight."""
    check_context(model, rows)
    total = sum(weight for row in rows for weight in row.counted_weights)

    def loss(numbers: Sequence[int], scores: Scores) -> Tensor:
        weights = [weight for i in numbers for weight in rows[i].counted_weights]
        weights_N = torch.tensor(weights, device=scores.logprobs_N.device)
        return next_token_loss(scores.logprobs_N, weights_N, total)

    value = model.accumulate([row.scored for row in rows], loss)
    model.update(rate, LARGEST_SUPERVISED)
    return value
