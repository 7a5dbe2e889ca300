"""Intervals for proportions and for means.

Two kinds: fixed intervals (`wilson`, `difference`, `paired_difference`) are for a number of tasks settled
beforehand. `Clock` widens an interval into a confidence sequence, which may be looked at at any time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from ostinato.types import Score


class TooFewError(ValueError):
    """Not enough observations for any interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate between its bounds.

    >>> Interval(estimate=0.1, low=-0.1, high=0.3).high
    0.3
    """

    estimate: float
    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Score:
    """Wilson's score interval of a proportion; never empty, also at 0 and n. Without trials it is [0, 1].

    >>> wilson(0, 0).high
    1.0
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} trials")
    if n == 0:
        return Score(solve=0.0, n=0, low=0.0, high=1.0)
    z, p = _z(confidence), successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Score(solve=p, n=n, low=max(0.0, min(p, middle - half)), high=min(1.0, max(p, middle + half)))


def difference(current: Score, candidate: Score, confidence: float = 0.95) -> Interval:
    """Candidate minus current on independent trials: Newcombe's hybrid score interval."""
    first, second = (wilson(round(s.solve * s.n), s.n, confidence) for s in (candidate, current))
    return _hybrid(first, second, correlation=0.0)


def paired_difference(
    current: Sequence[bool], candidate: Sequence[bool], confidence: float = 0.95
) -> Interval:
    """Candidate minus current on the same tasks in the same order: Newcombe's paired score interval.

    Narrower than `difference` as far as both solve the same tasks. Raises ValueError on unequal lengths.
    """
    pairs = list(zip(candidate, current, strict=True))
    n, mine, theirs = len(pairs), sum(candidate), sum(current)
    both, neither = sum(a and b for a, b in pairs), sum(not a and not b for a, b in pairs)
    first, second = wilson(mine, n, confidence), wilson(theirs, n, confidence)
    return _hybrid(first, second, correlation=_phi(both, neither, mine, theirs, n))


def _hybrid(first: Score, second: Score, *, correlation: float) -> Interval:
    """Square-and-add of the distances to each proportion's own bounds, less what correlation takes away."""
    d = first.solve - second.solve
    below = _added(first.solve - first.low, second.high - second.solve, correlation)
    above = _added(first.high - first.solve, second.solve - second.low, correlation)
    return Interval(estimate=d, low=max(-1.0, d - below), high=min(1.0, d + above))


def _added(a: float, b: float, correlation: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))


def _phi(both: int, neither: int, first: int, second: int, n: int) -> float:
    """Correlation of two paired binary outcomes, continuity corrected as Newcombe does; 0 where undefined."""
    spread = first * (n - first) * second * (n - second)
    if spread == 0:
        return 0.0
    product = both * neither - (first - both) * (second - both)
    corrected = max(product - n / 2, 0.0) if product > 0 else float(product)
    return corrected / math.sqrt(spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean or a difference of means: with the standard error robust to clusters, and how many of each."""

    value: float
    error: float
    n: int
    clusters: int


def clustered_mean(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """Mean of `values`, where values of one cluster (a user) may resemble each other.

    The error is that of a ratio of cluster sums, times sqrt(K / (K - 1)). Raises TooFewError below two
    clusters.
    """
    names, member = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2:
        raise TooFewError(f"{len(names)} cluster(s): the spread between users needs at least two")
    x = np.asarray(values, dtype=float)
    sums = np.bincount(member, weights=x - x.mean())
    error = math.sqrt(float(np.square(sums).sum()) * len(names) / (len(names) - 1)) / len(x)
    return Estimate(value=float(x.mean()), error=error, n=len(x), clusters=len(names))


_SAME = 1e-9
"""Of the largest: covariates that differ by less are one, told apart by rounding."""


def without_covariate(values: Sequence[float], covariates: Sequence[float]) -> list[float]:
    """`values` less the part that goes along with `covariates`, the mean of all unchanged (CUPED).

    Unbiased for a difference between arms as long as the covariate was settled before the arms were dealt.
    Source: Deng, Xu, Kohavi, Walker, "Improving the sensitivity of online controlled experiments", WSDM 2013.
    """
    x, y = np.asarray(covariates, dtype=float), np.asarray(values, dtype=float)
    largest = np.abs(x).max(initial=0.0)
    if largest == 0 or x.std() <= _SAME * largest:
        return list(values)
    spread = (x - x.mean()) / largest
    return [float(v) for v in y - spread * float(spread @ y) / float(spread @ spread)]


def minus(candidate: Estimate, current: Estimate) -> Estimate:
    """The difference of two independent estimates."""
    return Estimate(
        value=candidate.value - current.value,
        error=math.hypot(candidate.error, current.error),
        n=candidate.n + current.n,
        clusters=candidate.clusters + current.clusters,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """An asymptotic confidence sequence (Waudby-Smith et al.): Robbins' normal mixture around a mean.

    The intervals of all looks hold together with `confidence`, so one may stop at any look. They are
    narrowest near `horizon` observations, where they are about 1.6 times as wide as a single fixed
    interval.
    """

    horizon: int
    confidence: float = 0.95

    def width(self, n: int) -> float:
        """How many standard errors to each side after `n` observations."""
        alpha = 1 - self.confidence
        fraction = n / self.horizon * (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1))
        return math.sqrt(2 * (fraction + 1) / fraction * math.log(math.sqrt(fraction + 1) / alpha))

    def interval(self, estimate: Estimate) -> Interval:
        """Few clusters make the error itself uncertain: Student's t widens for them."""
        widths = self.width(estimate.n) * _small_sample(estimate.clusters, self.confidence)
        half = widths * estimate.error
        return Interval(estimate=estimate.value, low=estimate.value - half, high=estimate.value + half)


def _small_sample(clusters: int, confidence: float) -> float:
    """Ratio of Student's t quantile to the normal one; two means were estimated."""
    freedom = max(1, clusters - 2)
    return float(t.ppf(0.5 + confidence / 2, freedom)) / _z(confidence)


def _z(confidence: float) -> float:
    return float(norm.ppf(0.5 + confidence / 2))
