"""Truncated importance sampling, token by token."""
# ruff: noqa: N803, N806

from torch import Tensor


def truncated(deltas_N: Tensor, rows_N: Tensor, *, cap: float) -> tuple[Tensor, Tensor]:
    """Return min(pi / mu, cap) for every token, and which of them lie above the cap.

    Exact for the token itself up to the cap; above it the token counts `cap` times, so no single old token
    can dominate a step, and every token keeps some weight (Ionides 2008, "Truncated importance sampling").
    What came before the token in its session stays as mu drew it.
    """
    ratios_N = deltas_N.exp()
    return ratios_N.clamp(max=cap), ratios_N > cap
