"""Losses as pure functions of tensors.

Shapes: N counted tokens, flattened over rows; V vocabulary.
"""
# ruff: noqa: N803, N806

import torch
import torch.nn.functional as F
from torch import Tensor


def token_logprobs(logits_NV: Tensor, ids_N: Tensor, temperatures_N: Tensor | None = None) -> Tensor:
    """Return the natural log of the probability of each token under softmax(logits / temperature), [N].

    Without temperatures they are 1.
    """
    if temperatures_N is not None:
        logits_NV = logits_NV / temperatures_N[:, None]
    return -F.cross_entropy(logits_NV, ids_N, reduction="none")


def next_token_loss(logprobs_N: Tensor, weights_N: Tensor, total: float) -> Tensor:
    """Return the weighted cross-entropy in nats, divided by the weight of the whole batch, `total`.

    The losses (and gradients) of parts of a batch add up to those of the whole.
    """
    return -(logprobs_N * weights_N).sum() / total


def importance(logprobs_N: Tensor, behaviour_N: Tensor, cap: float) -> Tensor:
    """Return min(pi / mu, cap), detached: how much likelier a token is now than when it was sampled.

    Truncated importance sampling: the mean is right up to the cap, above it the token counts `cap` times,
    so no single old token can dominate a step. Every token keeps some weight.
    """
    return (logprobs_N.detach() - behaviour_N).exp().clamp(max=cap)


def policy_gradient_loss(
    logprobs_N: Tensor, ratios_N: Tensor, advantages_N: Tensor, constant: float
) -> Tensor:
    """Return -sum(A * ratio * log pi) / constant.

    `constant` depends neither on lengths nor on which rows are here, so the losses (and gradients) of parts
    of a batch add up to those of the whole, and a long answer is not discounted.
    """
    return -(advantages_N * ratios_N * logprobs_N).sum() / constant


def gradient_norm(parameters: list[Tensor], largest: float) -> float:
    """Scale the gradients down to a global norm of at most `largest`; return the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, largest))
