"""One optimizer step of the policy gradient.

Shapes: B rows, T tokens of the longest, N sampled tokens.
"""
# ruff: noqa: N806, N815

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.model.decoder import Decoder
from ostinato.train.batch import by_length, counted_logprobs, padded
from ostinato.train.config import PolicyConfig
from ostinato.train.losses import gradient_norm, importance, policy_gradient_loss
from ostinato.types import Sample

NEGLIGIBLE = 1e-6
"""A row with a smaller advantage has no gradient worth a forward pass."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a batch as tensors."""

    ids_BT: Tensor
    sampled_BT: Tensor
    behaviour_N: Tensor
    temperatures_N: Tensor
    """The temperature of each token when it was sampled: pi is the tempered policy, as mu was."""
    advantages_N: Tensor


def policy_step(
    decoder: Decoder,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    sessions: int,
    config: PolicyConfig,
) -> StepStats:
    """Change the weights by one step on all of `samples`; without any advantage they stay as they are.

    `sessions` counts those without an advantage too, so that they dilute the step instead of vanishing.
    """
    useful = [sample for sample in samples if abs(sample.advantage) >= NEGLIGIBLE]
    optimizer.zero_grad(set_to_none=True)
    loss, ratios = 0.0, []
    for piece in pieces(useful, config.piece_tokens):
        part, ratios_N = piece_loss(decoder, piece, sessions * config.tokens_per_session, config)
        part.backward()  # type: ignore[no-untyped-call]
        loss += part.item()
        ratios.append(ratios_N)
    gradient = gradient_norm(list(decoder.parameters()), config.largest_gradient) if useful else 0.0
    if useful:
        optimizer.step()
    all_ratios = torch.cat(ratios) if ratios else torch.ones(1)
    return StepStats(
        loss=loss,
        gradient=gradient,
        ratio=float(all_ratios.mean()),
        capped=float((all_ratios > config.ratio_cap).float().mean()),
        rows=len(useful),
        tokens=sum(len(piece) for piece in ratios),
    )


def pieces(samples: Sequence[Sample], tokens: int) -> list[Piece]:
    """Return the batch cut by length, so that little of it is padding."""
    lengths = [len(sample.ids) for sample in samples]
    return [_piece(some) for some in by_length(samples, lengths, tokens)]


def _piece(samples: Sequence[Sample]) -> Piece:
    return Piece(
        ids_BT=padded([sample.ids for sample in samples], torch.long),
        sampled_BT=padded([sample.mask for sample in samples], torch.bool),
        behaviour_N=torch.tensor([x for s in samples for x in _sampled(s, s.logprobs)]),
        temperatures_N=torch.tensor([x for s in samples for x in _sampled(s, s.temperatures)]),
        advantages_N=torch.tensor([s.advantage for s in samples for _ in _sampled(s, s.ids)]),
    )


def _sampled(sample: Sample, values: Sequence[float]) -> list[float]:
    """Return the values of the sampled tokens; the first one of a row cannot be predicted."""
    pairs = zip(values[1:], sample.mask[1:], strict=True)
    return [value for value, sampled in pairs if sampled]


def piece_loss(
    decoder: Decoder, piece: Piece, constant: float, config: PolicyConfig
) -> tuple[Tensor, Tensor]:
    """Return the piece's share of the loss, and pi / mu of its tokens before the cap, [N]."""
    logprobs_N = counted_logprobs(decoder, piece.ids_BT, piece.sampled_BT, piece.temperatures_N)
    ratios_N = importance(logprobs_N, piece.behaviour_N, config.ratio_cap)
    loss = policy_gradient_loss(logprobs_N, ratios_N, piece.advantages_N, constant)
    return loss, (logprobs_N.detach() - piece.behaviour_N).exp()
