"""The figures of a benchmark: shares with intervals, differences between two versions, what can be detected.

Tasks of one repository resemble each other, so every error is a jackknife over repositories, with Student's
quantiles (`deploy/statistics.py`). All functions take arrays whose last axes are (tasks, passes) or (tasks,),
with one row before them for each suite that is computed at once.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from ostinato.deploy.outcomes import of_clusters
from ostinato.deploy.statistics import Estimate, Floats, clustered, half_width, tail

LEVEL = 0.05
"""One less the confidence of an interval, and the level of the test between two versions."""
POWER = 0.8
MOST_LEAN = 0.9
"""The largest correlation of a difference with its error that a few tasks may be taken to show."""
_GRID = (np.arange(120) + 0.5) / 120


def member(clusters: list[str]) -> Floats:
    """Return (tasks, clusters), 1 where a task belongs to a cluster."""
    names, index = np.unique(clusters, return_inverse=True)
    return np.asarray(np.eye(len(names))[index], dtype=np.float64)


def share(values: Floats, clusters: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean, low and high of values in [0, 1], by task (..., tasks), with a 95 % interval.

    The interval is Wilson's with Student's quantile, for the number of independent trials that the clusters
    amount to, p(1 - p) / error². Where all clusters agree there is no error to go by, so each counts as one
    trial.
    """
    estimate = of_clusters(values, clusters)
    p = np.clip(estimate.value, 0.0, 1.0)
    groups = (clusters.sum(axis=0) > 0).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        trials = np.where(estimate.error > 0, p * (1 - p) / np.square(estimate.error), groups)
    trials = np.clip(np.nan_to_num(trials, posinf=groups), 1e-9, values.shape[-1])
    t2 = np.square(stdtrit(estimate.freedom, 1 - LEVEL / 2))
    middle = (p + t2 / (2 * trials)) / (1 + t2 / trials)
    half = np.sqrt(t2) / (1 + t2 / trials) * np.sqrt(p * (1 - p) / trials + t2 / (4 * np.square(trials)))
    return p, np.maximum(0.0, np.minimum(p, middle - half)), np.minimum(1.0, np.maximum(p, middle + half))


def quantity(values: Floats, clusters: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean, low and high of any values by task, (..., tasks), with a 95 % interval."""
    estimate = of_clusters(values, clusters)
    half = half_width(estimate, LEVEL / 2)
    return estimate.value, estimate.value - half, estimate.value + half


def amount(values: Floats, clusters: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean, low and high of values of at least 0, of which no interval reaches below 0."""
    mean, low, high = quantity(values, clusters)
    return mean, np.maximum(low, 0.0), high


def difference(differences: Floats, clusters: Floats) -> Estimate:
    """Return the mean difference over tasks, (..., tasks), each in [-1, 1].

    Half a task won and half a task lost are added, each a cluster of its own, so that two versions that agree
    on every measured task are not taken to agree on all possible ones (Agresti, Min, "Effects and non-effects
    of paired identical observations", 2004). The degrees of freedom are those of the real clusters.
    """
    real = of_clusters(differences, clusters)
    sums, weights = differences @ clusters, clusters.sum(axis=0)
    ends = np.broadcast_to([0.5, -0.5], (*sums.shape[:-1], 2))
    padded = clustered(
        np.concatenate([sums, ends], axis=-1),
        np.broadcast_to(np.concatenate([weights, [0.5, 0.5]]), (*sums.shape[:-1], len(weights) + 2)),
    )
    return Estimate(value=real.value, error=np.maximum(real.error, padded.error), freedom=real.freedom)


def two_sided(estimate: Estimate) -> Floats:
    """Return the p-value of the hypothesis that there is no difference."""
    sign = np.where(estimate.value < 0, -1.0, 1.0)
    turned = Estimate(value=sign * estimate.value, error=estimate.error, freedom=estimate.freedom)
    return np.asarray(np.minimum(1.0, 2 * tail(turned, 0.0)))


def detectable(estimate: Estimate, differences: Floats) -> float:
    """Return the smallest true difference that a comparison on this suite detects with a chance of 80 %.

    `estimate` is of one comparison that was made, and `differences` are its tasks', (tasks,). Its error is
    itself estimated, and so will be that of the comparison to come, each with `freedom` degrees of freedom ν:
    the difference is c times the error, where

        P(c s + z > t s') = 0.8,   s², s'² ~ χ²(ν)/ν independent,   z ~ N(0, 1),   t = Student's quantile of ν

    and z leans on s' as the difference leans on its error (`lean`). So the stated power holds on the average
    over what both may find. Infinite with fewer than two clusters.
    """
    error, freedom = float(estimate.error), float(estimate.freedom)
    if not np.isfinite(error):
        return float("inf")
    return factor(freedom, float(lean(estimate, differences))) * error


def lean(estimate: Estimate, differences: Floats) -> Floats:
    """Return the correlation of a difference, in the direction found, with its own error; (..., tasks) gives
    (...).

    A version that fails on a few tasks differs by little where few of them are in the suite, and its error is
    small there too, so more is detected than if the two had nothing to do with each other. For n independent
    tasks the covariance of a mean and its squared error is the mean's third cumulant, Σ(d - mean)³/n³, and
    the error's own standard deviation is error / √(2ν). At most 0.9 on either side.
    """
    values = np.asarray(differences, dtype=float)
    third = ((values - values.mean(axis=-1, keepdims=True)) ** 3).sum(axis=-1) / values.shape[-1] ** 3
    with np.errstate(invalid="ignore", divide="ignore"):
        skew = np.sign(estimate.value) * third / np.asarray(estimate.error) ** 3
    correlation = np.nan_to_num(np.sqrt(np.asarray(estimate.freedom) / 2) * skew)
    return np.asarray(np.clip(correlation, -MOST_LEAN, MOST_LEAN))


def factor(freedom: float, lean: float = 0.0) -> float:
    """Return the c of `detectable` for ν degrees of freedom; ν of infinity gives the usual 2.80."""
    if not np.isfinite(freedom):
        return float(ndtri(1 - LEVEL / 2) + ndtri(POWER))
    t = float(stdtrit(freedom, 1 - LEVEL / 2))
    s = np.sqrt(2 * gammaincinv(freedom / 2, _GRID) / freedom)
    threshold = t * s - lean * (s - s.mean()) / s.std()
    left = np.sqrt(1 - lean**2)

    def short(c: float) -> float:
        return float(ndtr((c * s[:, None] - threshold[None, :]) / left).mean()) - POWER

    return float(brentq(short, 0.0, 1e4))


def mean_difference(differences: Floats, clusters: Floats) -> Estimate:
    """Return the mean difference over tasks of a measure that has no bounds, such as a number of tokens."""
    return of_clusters(differences, clusters)
