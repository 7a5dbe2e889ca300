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
from ostinato.train.losses import gradient_norm, importance, policy_gradient_loss
from ostinato.types import Sample

NEGLIGIBLE = 1e-6
"""A row with a smaller advantage has no gradient worth a forward pass."""
TOKENS_PER_SESSION = 30
"""With the number of sessions, the constant the loss is divided by: about what one samples, and never
measured."""
RATIO_CAP = 2.0
LARGEST_GRADIENT = 0.5
PIECE_TOKENS = 3072
"""Padded tokens in one forward pass: more did not get faster on one CPU thread, only bigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one step did; `ratio` is the mean of pi / mu before the cap, `capped` the share above it."""

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
    advantages_N: Tensor


def policy_step(
    decoder: Decoder, optimizer: torch.optim.Optimizer, samples: Sequence[Sample], sessions: int
) -> StepStats:
    """Changes the weights by one step on all of `samples`; without any advantage they stay as they are.

    `sessions` counts those without an advantage too, so that they dilute the step instead of vanishing.
    """
    useful = [sample for sample in samples if abs(sample.advantage) >= NEGLIGIBLE]
    optimizer.zero_grad(set_to_none=True)
    loss, ratios = 0.0, []
    for piece in pieces(useful):
        part, ratios_N = piece_loss(decoder, piece, sessions * TOKENS_PER_SESSION)
        part.backward()  # type: ignore[no-untyped-call]
        loss += part.item()
        ratios.append(ratios_N)
    gradient = gradient_norm(list(decoder.parameters()), LARGEST_GRADIENT) if useful else 0.0
    if useful:
        optimizer.step()
    all_ratios = torch.cat(ratios) if ratios else torch.ones(1)
    return StepStats(
        loss=loss,
        gradient=gradient,
        ratio=float(all_ratios.mean()),
        capped=float((all_ratios > RATIO_CAP).float().mean()),
        rows=len(useful),
        tokens=sum(len(piece) for piece in ratios),
    )


def pieces(samples: Sequence[Sample]) -> list[Piece]:
    """The batch cut by length, so that little of it is padding."""
    lengths = [len(sample.ids) for sample in samples]
    return [_piece(some) for some in by_length(samples, lengths, PIECE_TOKENS)]


def _piece(samples: Sequence[Sample]) -> Piece:
    return Piece(
        ids_BT=padded([sample.ids for sample in samples], torch.long),
        sampled_BT=padded([sample.mask for sample in samples], torch.bool),
        behaviour_N=torch.tensor([x for s in samples for x in _sampled(s)]),
        advantages_N=torch.tensor([s.advantage for s in samples for _ in _sampled(s)]),
    )


def _sampled(sample: Sample) -> list[float]:
    """The logprobs of the sampled tokens; the first token of a row cannot be predicted, so it is none."""
    pairs = zip(sample.logprobs[1:], sample.mask[1:], strict=True)
    return [logprob for logprob, sampled in pairs if sampled]


def piece_loss(decoder: Decoder, piece: Piece, constant: float) -> tuple[Tensor, Tensor]:
    """The piece's share of the loss, and pi / mu of its tokens before the cap, [N]."""
    logprobs_N = counted_logprobs(decoder, piece.ids_BT, piece.sampled_BT)
    ratios_N = importance(logprobs_N, piece.behaviour_N, RATIO_CAP)
    loss = policy_gradient_loss(logprobs_N, ratios_N, piece.advantages_N, constant)
    return loss, (logprobs_N.detach() - piece.behaviour_N).exp()
