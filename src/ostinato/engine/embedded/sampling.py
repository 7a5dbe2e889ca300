"""Choosing tokens: by inverse CDF from one uniform number a token.

So a request's tokens depend on its own seed and not on who shares the batch.
"""

import torch
from torch import Tensor


def sample(logits: Tensor, temperature: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and the natural log of their probability: logits [B, V], temperature [B], uniform [B] in [0, 1).

    Temperature 0 takes the likeliest token; its logprob is then that of temperature 1.
    """
    greedy = temperature <= 0
    scale = torch.where(greedy, 1.0, temperature)
    logprobs = torch.log_softmax(logits / scale[:, None], -1)
    cdf = logprobs.exp().cumsum(-1)
    target = uniform.float()[:, None] * cdf[:, -1:]
    # right=True never lands on a token of probability zero; rounding at the very end could pass the last one.
    drawn = torch.searchsorted(cdf, target, right=True).clamp_(max=logits.shape[-1] - 1)[:, 0]
    tokens = torch.where(greedy, logits.argmax(-1), drawn) if greedy.any() else drawn
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]
