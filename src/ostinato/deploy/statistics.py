"""Estimates whose errors hold when observations come in clusters, and the bounds around them.

Everything works on arrays whose last axis is the clusters, so one call judges one test or a million simulated
ones. A bound is one-sided at a stated level: the chance that the truth lies beyond it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, ndtr, ndtri, stdtr, stdtrit

from ostinato.types import Score

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate between its bounds, which reads `+0.100 [-0.100, +0.300]` as text.

    >>> Interval(estimate=0.1, low=-0.1, high=0.3).high
    0.3
    """

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"

    def percent(self) -> str:
        """Return a relative change as text.

        >>> Interval(estimate=0.0228, low=0.01, high=0.0356).percent()
        '+2.28 % [+1.00, +3.56]'
        """
        return f"{100 * self.estimate:+.2f} % [{100 * self.low:+.2f}, {100 * self.high:+.2f}]"


def wilson(successes: float, n: float, confidence: float = 0.95) -> Score:
    """Return Wilson's score interval of a proportion: never empty, even at 0 and n; [0, 1] without trials.

    `n` may be an effective number of trials and then need not be whole; the Score rounds it down.

    >>> wilson(0, 0).high
    1.0
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} trials")
    if n == 0:
        return Score(solve=0.0, n=0, low=0.0, high=1.0)
    z, p = float(ndtri(0.5 + confidence / 2)), successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))
    return Score(solve=p, n=int(n), low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean, or a difference of means, with its standard error and the error's degrees of freedom.

    All three have the same shape, with one entry for each test that is computed at once.
    """

    value: Floats
    error: Floats
    freedom: Floats


def clustered(sums: ArrayLike, weights: ArrayLike) -> Estimate:
    """Return the ratio of all sums to all weights, where values of one cluster may resemble each other.

    `sums` and `weights`, (..., clusters), are the weighted sum of a cluster's values and its weight; a
    cluster of weight 0 does not count. The error is the leave-one-cluster-out jackknife's, which holds when
    clusters differ in size (MacKinnon, Nielsen, Webb, "Fast and reliable jackknife and bootstrap methods for
    cluster-robust inference", 2023). Its degrees of freedom are Satterthwaite's for weighted clusters: (Σw²)²
    / Σw⁴ - 1, at most their number less one. With fewer than two clusters the error is infinite.
    """
    s, w = np.asarray(sums, dtype=float), np.asarray(weights, dtype=float)
    present = w > 0
    k = present.sum(axis=-1)
    total, weight = s.sum(axis=-1, keepdims=True), w.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / weight
        without = np.where(present, (total - s) / (weight - w), mean)
        error = np.sqrt((k - 1) / k * np.square(without - mean).sum(axis=-1))
        share = np.where(present, w / weight, 0.0)
        freedom = np.square(np.square(share).sum(axis=-1)) / np.power(share, 4).sum(axis=-1) - 1
    few = k < 2
    return Estimate(
        value=np.where(k < 1, 0.0, mean[..., 0]),
        error=np.where(few, np.inf, error),
        freedom=np.where(few, 1.0, np.maximum(1.0, freedom)),
    )


def minus(candidate: Estimate, current: Estimate) -> Estimate:
    """Return the difference of two independent estimates, with Welch's degrees of freedom."""
    a, b = np.square(candidate.error), np.square(current.error)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        freedom = np.square(a + b) / (np.square(a) / candidate.freedom + np.square(b) / current.freedom)
    either = np.minimum(candidate.freedom, current.freedom)
    return Estimate(
        value=candidate.value - current.value,
        error=np.sqrt(a + b),
        freedom=np.where(np.isfinite(freedom), freedom, either),
    )


def half_width(estimate: Estimate, level: ArrayLike, fraction: ArrayLike | None = None) -> Floats:
    """Return the distance of a one-sided bound of this level from the estimate.

    Without `fraction` the bound holds for one look. With it, the part in (0, 1] of a test of fixed length
    that is over, the bound holds for all looks up to the end together: a Brownian motion exceeds c before
    time 1 with probability 2 P(Z > c), by reflection, so z must exceed z(level / 2) / √fraction. This is the
    O'Brien-Fleming boundary in the limit of continuous looks (Lan, DeMets, Biometrika 1983). At the end it is
    a fifth wider at 5 %; early on it is far wider, just where few users make errors uncertain. Normal
    quantiles are turned into Student's of the same tail.
    """
    if fraction is None:
        tail = np.asarray(level, dtype=float)
    else:
        tail = ndtr(ndtri(np.asarray(level) / 2) / np.sqrt(np.asarray(fraction, dtype=float)))
    tail = np.maximum(tail, 1e-300)  # the quantile of a tail of 0 has the wrong sign
    with np.errstate(invalid="ignore"):
        half = -stdtrit(estimate.freedom, tail) * estimate.error
    return np.where(np.isnan(half), np.inf, half)


def interval(estimate: Estimate, level: float, fraction: float | None = None) -> Interval:
    """Return the two one-sided bounds of this level around one estimate; `fraction` as in `half_width`."""
    value, half = float(estimate.value), float(half_width(estimate, level, fraction))
    return Interval(estimate=value, low=value - half, high=value + half)


def relative(candidate: Estimate, current: Estimate, level: float, fraction: float) -> Interval:
    """Return the relative change of two independent means above 0: 0.02 for two per cent more.

    The bounds are those of the logarithm of the ratio. Its error is the delta method's, from each mean's
    error as a part of it (Deng, Knoblich, Lu, "Applying the delta method in metric analytics", KDD 2018).
    """
    logs = minus(*(replace(e, value=np.log(e.value), error=e.error / e.value) for e in (candidate, current)))
    change = interval(logs, level, fraction)
    low, middle, high = (math.expm1(min(700.0, x)) for x in (change.low, change.estimate, change.high))
    return Interval(estimate=middle, low=low, high=high)  # above 700, it is beyond a float


def anytime(estimate: Estimate, level: float, tightest: float) -> Interval:
    """Return a two-sided interval that holds at every look together, without any end that was planned.

    It is Robbins' normal mixture with an estimated variance, narrowest where the error is `tightest`, and
    holds in the limit of many observations (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform
    central limit theory and asymptotic confidence sequences", 2021, theorem 2.2).
    """
    value, error = float(estimate.value), float(estimate.error)
    if not 0 < error < math.inf:
        return Interval(estimate=value, low=-math.inf, high=math.inf)
    best = -2 * math.log(level) + math.log(1 - 2 * math.log(level))
    seen = best * (tightest / error) ** 2
    half = error * math.sqrt(2 * (1 + 1 / seen) * math.log(math.sqrt(1 + seen) / level))
    return Interval(estimate=value, low=value - half, high=value + half)


def tail(estimate: Estimate, above: float) -> Floats:
    """Return the one-sided p-values, at one look, of the hypotheses that the truth is at most `above`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (estimate.value - above) / estimate.error
    return np.asarray(np.where(np.isnan(t), 1.0, stdtr(estimate.freedom, -t)), dtype=np.float64)


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Return which hypotheses are rejected when any false rejection among all has chance `level` at most.

    It holds under any dependence. Source: Holm, "A simple sequentially rejective multiple test procedure",
    1979.

    >>> holm([0.04, 0.01, 0.2], 0.05)
    [False, True, False]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def sample_ratio(challengers: int, users: int, share: float) -> float:
    """Return the Bayes factor, with a uniform prior, of the arms' sizes against the share that was set.

    Under that share it is a martingale that starts at 1, so the chance that it ever exceeds 1/a is a at most,
    however often one looks (Lindon, Malek, "Anytime-valid
    inference for multinomial count data", NeurIPS 2022).

    >>> sample_ratio(20, 40, 0.5) < 1 < sample_ratio(5, 40, 0.5)
    True
    """
    others = users - challengers
    evidence = betaln(1 + challengers, 1 + others)
    against = evidence - challengers * math.log(share) - others * math.log(1 - share)
    return math.exp(min(700.0, against))  # above, it is beyond every limit and beyond a float
