"""The figures of a step's tokens: how far trainer and sampler disagree, how much of the sample is left."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ostinato.train.base import StepStats
from ostinato.types import GapFigures, Percentiles

Floats = NDArray[np.float64]
LARGEST_LOG = 700.0
"""The logarithm above which a float64 overflows; a ratio beyond it is reported as this."""


def measured(table: Tensor) -> StepStats:
    """Return the figures of tokens from their table [N, 4], in nats: log pi - log mu, 1 where the correction
    cut, the version gap, and the entropy of pi. Without tokens they are those of no step.
    """
    if not len(table):
        return StepStats()
    deltas, cut, gaps, entropies = table.numpy().T
    return StepStats(
        tokens=len(deltas),
        ratio=float(np.exp(np.minimum(deltas, LARGEST_LOG)).mean()),
        cut=float(cut.mean()),
        mismatch=percentiles(np.abs(deltas)),
        effective=effective(deltas),
        gaps=tuple(_of_gap(int(gap), deltas[gaps == gap]) for gap in np.unique(gaps)),
        entropy=float(entropies.mean()),
    )


def percentiles(values: Sequence[float] | Floats) -> Percentiles:
    """Return the median, the 99th percentile and the largest of at least one value.

    >>> percentiles([1.0, 2.0, 3.0]).p50
    2.0
    """
    p50, p99, most = np.quantile(np.asarray(values, np.float64), (0.5, 0.99, 1.0))
    return Percentiles(p50=float(p50), p99=float(p99), most=float(most))


def effective(deltas: Floats) -> float:
    """Return the effective sample size over the number of tokens, (sum r)^2 / (n sum r^2) with r = e^delta.

    It is 1 when all ratios agree, and 1/n when one token has all the weight (Kong 1992). It does not depend
    on a common factor, so the largest ratio is taken out and nothing overflows.
    """
    ratios = np.exp(deltas - deltas.max())
    return float(ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()))


def _of_gap(gap: int, deltas: Floats) -> GapFigures:
    return GapFigures(
        gap=gap, tokens=len(deltas), mismatch=percentiles(np.abs(deltas)), effective=effective(deltas)
    )
