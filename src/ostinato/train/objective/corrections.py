"""The weights of tokens that other weights sampled: one function a correction, chosen by the settings.

Shapes: N sampled tokens, flattened over rows.
"""
# ruff: noqa: N803, N806

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ostinato.extend import guarded
from ostinato.train.config import CORRECTIONS, PolicyConfig


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


def truncated(deltas_N: Tensor, rows_N: Tensor, *, cap: float) -> tuple[Tensor, Tensor]:
    """Return min(pi / mu, cap) for every token, and which of them lie above the cap.

    Exact for the token itself up to the cap; above it the token counts `cap` times, so no single old token
    can dominate a step, and every token keeps some weight (Ionides 2008, "Truncated importance sampling").
    What came before the token in its session stays as mu drew it.
    """
    ratios_N = deltas_N.exp()
    return ratios_N.clamp(max=cap), ratios_N > cap


def icepop(deltas_N: Tensor, rows_N: Tensor, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return pi / mu where it lies in [low, high] and 0 elsewhere, and which tokens lie outside.

    (Ling team 2025, "Every step evolves", arXiv:2510.18855: bounds of 0.5 and 5 for mixtures of experts.)
    """
    ratios_N = deltas_N.exp()
    outside_N = (ratios_N < low) | (ratios_N > high)
    return torch.where(outside_N, 0.0, ratios_N), outside_N


def plain(deltas_N: Tensor, rows_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight of 1 for every token, and no token as cut.

    The expectation stays that of the sampler: biased off-policy, and never noisier than the sample.
    """
    return torch.ones_like(deltas_N), torch.zeros_like(deltas_N, dtype=torch.bool)


Correction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function from log pi - log mu of some tokens [N], detached, and the number of the row of each [N], to the
weight of each [N], and which of them it bounded or removed [N]. A row's tokens always come together."""


def correction(name: str) -> Callable[[Correction], Correction]:
    """Return a decorator that adds a correction, for `correction = "NAME"` in `[refine.policy]`.

    The loss of a token is minus its weight times its advantage times log pi. An error in it ends the trainer,
    which goes on from its last version once mended.
    """

    def add(function: Correction) -> Correction:
        CORRECTIONS.add(name, guarded(f"correction {name}", function))
        return function

    return add


def correction_of(config: PolicyConfig) -> Correction:
    """Return the correction that the settings name."""
    match config.correction:
        case "none":
            return plain
        case "truncated":
            return partial(truncated, cap=config.ratio_cap)
        case "icepop":
            return partial(icepop, low=config.ratio_low, high=config.ratio_high)
        case "sequence":
            return partial(sequence, cap=config.ratio_cap)
    added: Correction = CORRECTIONS[config.correction]
    return added
