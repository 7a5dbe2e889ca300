"""One weight for all tokens of a row: the geometric mean of their ratios."""
# ruff: noqa: N803, N806

import torch
from torch import Tensor


def sequence(deltas_N: Tensor, rows_N: Tensor, *, cap: float) -> tuple[Tensor, Tensor]:
    """Return min((prod pi / mu)^(1/n), cap) over the n sampled tokens of a row, for each of its tokens.

    A row is one segment of a session. The geometric mean (Zheng et al. 2025, arXiv:2507.18071, GSPO) and not
    the product, which is the exact weight of the whole row: the product's variance grows exponentially with
    the length, and a row of hundreds of tokens has either no weight or the cap. The mean is biased
    off-policy.
    """
    count = int(rows_N.max()) + 1 if len(rows_N) else 0
    sums = torch.zeros(count, dtype=deltas_N.dtype, device=deltas_N.device).index_add_(0, rows_N, deltas_N)
    lengths = torch.bincount(rows_N, minlength=count).clamp(min=1)
    ratios_N = (sums / lengths).exp()[rows_N]
    return ratios_N.clamp(max=cap), ratios_N > cap
