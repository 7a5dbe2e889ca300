"""Log-probabilities, entropies, and the losses of imitation and policy gradient, as functions of tensors.

Shapes: N counted tokens, flattened over rows; V vocabulary.
"""
# ruff: noqa: N803, N806

import torch
import torch.nn.functional as F
from torch import Tensor

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


def next_token_loss(logprobs_N: Tensor, weights_N: Tensor, total: float) -> Tensor:
    """Return the weighted cross-entropy in nats, divided by the weight of the whole batch, `total`.

    The losses (and gradients) of parts of a batch add up to those of the whole.
    """
    return -(logprobs_N * weights_N).sum() / total


def gradient_norm(parameters: list[Tensor], largest: float) -> float:
    """Scale the gradients down to a global norm of at most `largest`; return the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, largest))


def policy_gradient_loss(
    logprobs_N: Tensor, weights_N: Tensor, advantages_N: Tensor, constant: float
) -> Tensor:
    """Return -sum(A * weight * log pi) / constant; the weights have no gradient.

    `constant` depends neither on lengths nor on which rows are here, so the losses (and gradients) of parts
    of a batch add up to those of the whole, and a long answer is not discounted.
    """
    return -(advantages_N * weights_N.detach() * logprobs_N).sum() / constant
