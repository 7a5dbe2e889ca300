"""Means and shares with their 95 % intervals, and quantiles, as the charts draw them."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from ostinato.dashboard.reading.base import Answer

Z = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def mean_of(values: Sequence[float]) -> Answer:
    """Return the mean of at least one value with its interval; a single value has none, so its bounds are
    equal.

    >>> mean_of([0.0, 1.0])["mean"]
    0.5
    """
    mean = fmean(values)
    half = Z * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": len(values)}


def share_of(successes: float, n: int) -> Answer:
    """Return a share of at least one trial with Wilson's score interval, which is never empty.

    >>> share_of(0, 10)["high"] > 0.2
    True
    """
    p = successes / n
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return {
        "mean": p,
        "low": max(0.0, min(p, middle - half)),
        "high": min(1.0, max(p, middle + half)),
        "n": n,
    }


def quantiles(values: Sequence[float]) -> list[float]:
    """Return the values at 5, 25, 50, 75 and 95 % of at least one value, between neighbours in proportion."""
    ordered = sorted(values)
    found = []
    for share in QUANTILES:
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return found
