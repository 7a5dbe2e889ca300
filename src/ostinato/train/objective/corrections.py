"""The correction for tokens that other weights sampled, chosen by the settings."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from ostinato.train.config import PolicyConfig
from ostinato.train.objective.icepop import icepop
from ostinato.train.objective.plain import plain
from ostinato.train.objective.sequence import sequence
from ostinato.train.objective.truncated import truncated

Correction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function from log pi - log mu of some tokens [N], detached, and the number of the row of each [N], to the
weight of each [N], and which of them it bounded or removed [N]. A row's tokens always come together."""


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
