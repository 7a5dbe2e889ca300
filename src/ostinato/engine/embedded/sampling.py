"""The choice of tokens: by the inverse CDF of one uniform number per token.

So the tokens of a request depend on its own seed and not on the other requests of the batch.
"""

import torch
from torch import Tensor


def sample(logits: Tensor, temperature: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens [B] and their natural log-probabilities [B].

    `logits` have shape [B, V], `temperature` and `uniform` in [0, 1) have shape [B]. Temperature 0 takes the
    likeliest token; its log-probability is then that of temperature 1.
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
