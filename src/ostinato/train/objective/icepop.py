"""IcePop: tokens on which trainer and sampler disagree too much do not count, on either side."""
# ruff: noqa: N803, N806

import torch
from torch import Tensor


def icepop(deltas_N: Tensor, rows_N: Tensor, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return pi / mu where it lies in [low, high] and 0 elsewhere, and which tokens lie outside.

    (Ling team 2025, "Every step evolves", arXiv:2510.18855: bounds of 0.5 and 5 for mixtures of experts.)
    """
    ratios_N = deltas_N.exp()
    outside_N = (ratios_N < low) | (ratios_N > high)
    return torch.where(outside_N, 0.0, ratios_N), outside_N
