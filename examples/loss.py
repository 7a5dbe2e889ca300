"""A loss: PPO's clipped ratio, which stops a token whose probability moved far enough the way it should.

[refine.policy]
loss = "clipped"
"""

import torch
from torch import Tensor

import ostinato as o


@o.loss("clipped")
def clipped(tokens: o.SampledTokens) -> tuple[Tensor, Tensor]:
    """Return minus the lesser of A r and A clip(r, 0.8, 1.2) of each token [N], and if it was clipped [N]."""
    ratios = (tokens.logprobs_N - tokens.sampler_N).exp()
    whole, bounded = (tokens.advantages_N * each for each in (ratios, ratios.clamp(0.8, 1.2)))
    return -torch.minimum(whole, bounded), bounded < whole
