"""The loss of the policy gradient.

Shapes: N counted tokens, flattened over rows.
"""
# ruff: noqa: N803

from torch import Tensor


def policy_gradient_loss(
    logprobs_N: Tensor, weights_N: Tensor, advantages_N: Tensor, constant: float
) -> Tensor:
    """Return -sum(A * weight * log pi) / constant; the weights have no gradient.

    `constant` depends neither on lengths nor on which rows are here, so the losses (and gradients) of parts
    of a batch add up to those of the whole, and a long answer is not discounted.
    """
    return -(advantages_N * weights_N.detach() * logprobs_N).sum() / constant
