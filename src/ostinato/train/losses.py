"""Log-probabilities, entropies, and the losses of imitation, as functions of tensors.

Shapes: N counted tokens, flattened over rows; V vocabulary.
"""
# ruff: noqa: N803, N806, N815

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS = 2**24
"""The logits that are in memory at once where text is scored."""
LEAST = -1e4
"""A log-probability below this counts as this in an entropy, since 0 times minus infinity is no number."""


def token_logprobs(logits_NV: Tensor, ids_N: Tensor, temperatures_N: Tensor | None = None) -> Tensor:
    """Return the natural log of the probability of each token under softmax(logits / temperature), [N].

    Without temperatures they are 1.
    """
    if temperatures_N is not None:
        logits_NV = logits_NV / temperatures_N[:, None]
    return -F.cross_entropy(logits_NV, ids_N, reduction="none")


@torch.no_grad()
def token_entropies(logits_NV: Tensor, temperatures_N: Tensor | None = None) -> Tensor:
    """Return the entropy of softmax(logits / temperature) in nats, [N], without a gradient."""
    if temperatures_N is not None:
        logits_NV = logits_NV / temperatures_N[:, None]
    logprobs_NV = torch.log_softmax(logits_NV, -1)
    return -(logprobs_NV.exp() * logprobs_NV.clamp(min=LEAST)).sum(-1)


class TextScores(NamedTuple):
    """The scores of text: of each token, with gradients."""

    nats_N: Tensor
    """Minus the log-probability."""
    normalisers_N: Tensor
    """The logarithm of the softmax's denominator."""


def text_scores(logits_NV: Tensor, ids_N: Tensor) -> TextScores:
    """Return the scores of tokens under softmax(logits)."""
    nats_N = F.cross_entropy(logits_NV, ids_N, reduction="none")
    return TextScores(nats_N, nats_N + logits_NV.gather(1, ids_N[:, None])[:, 0])


def text_scores_of(head: Callable[[Tensor], Tensor], hidden_NC: Tensor, ids_N: Tensor) -> TextScores:
    """Return the scores of tokens from the input of `head`.

    More logits than `LOGITS` come in pieces, which the backward pass computes again.
    """
    vocabulary = int(head(hidden_NC[:1]).shape[-1])
    size = max(1, LOGITS // vocabulary)
    pieces = list(zip(torch.split(hidden_NC, size), torch.split(ids_N, size), strict=True))

    def score(hidden: Tensor, ids: Tensor) -> TextScores:
        return text_scores(head(hidden).float(), ids)

    if len(pieces) == 1 or not hidden_NC.requires_grad:
        parts = [score(*piece) for piece in pieces]
    else:
        parts = [checkpoint(score, *piece, use_reentrant=False) for piece in pieces]
    return TextScores(*(torch.cat(column) for column in zip(*parts, strict=True)))


class TextSums(NamedTuple):
    """The sums over the tokens of a batch, and their number."""

    nats: float = 0.0
    squares: float = 0.0
    """Of the normalisers."""
    tokens: int = 0

    @classmethod
    def of(cls, scores: TextScores) -> "TextSums":
        squares = scores.normalisers_N.detach().square().sum()
        return cls(float(scores.nats_N.detach().sum()), float(squares), len(scores.nats_N))

    def __add__(self, other: "TextSums") -> "TextSums":  # type: ignore[override]
        return TextSums(self.nats + other.nats, self.squares + other.squares, self.tokens + other.tokens)


def text_loss(scores: TextScores, z_loss: float, total: int) -> Tensor:
    """Return the cross-entropy with `z_loss` times the squared normalisers, a token of `total`.

    The z-loss is that of Chowdhery et al., "PaLM" (2022), section 5. Parts of a batch add up.
    """
    return (scores.nats_N.sum() + z_loss * scores.normalisers_N.square().sum()) / total


def next_token_loss(logprobs_N: Tensor, weights_N: Tensor, total: float) -> Tensor:
    """Return the weighted cross-entropy in nats, divided by the weight of the whole batch, `total`.

    The losses (and gradients) of parts of a batch add up to those of the whole.
    """
    return -(logprobs_N * weights_N).sum() / total


def gradient_norm(parameters: list[Tensor], largest: float) -> float:
    """Scale the gradients down to a global norm of at most `largest`; return the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, largest))
