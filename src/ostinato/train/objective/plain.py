"""No correction: every sampled token counts once, as if the present weights had sampled it."""
# ruff: noqa: N803

import torch
from torch import Tensor


def plain(deltas_N: Tensor, rows_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight of 1 for every token, and no token as cut.

    The expectation stays that of the sampler: biased off-policy, and never noisier than the sample.
    """
    return torch.ones_like(deltas_N), torch.zeros_like(deltas_N, dtype=torch.bool)
