"""The moment at which a noisy learning curve arrives at a target, and ratios of such moments.

A curve is measured at a few checkpoints, so its points are noisy. It is replaced by the closest curve that
never falls (isotonic regression), and between two points it is a straight line. A run that never arrives is
*censored*: all that is known is that it would have needed more than it spent. A ratio with a censored side
therefore has bounds instead of a value, and a median over runs has bounds too. No bound is ever guessed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

LEVEL = 0.025
"""The share of bootstrap samples beyond each end of an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The expense until each checkpoint, from 0 on, and the solve rate of each.

    >>> Curve(spent=(0.0, 10.0), solved=(0.2, 0.6)).arrival(0.4)
    5.0
    """

    spent: tuple[float, ...]
    solved: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.spent) != len(self.solved) or not self.spent:
            raise ValueError(f"a curve needs a solve rate for each point: {self.spent}, {self.solved}")
        if any(after <= before for before, after in zip(self.spent, self.spent[1:], strict=False)):
            raise ValueError(f"the points of a curve are in order, got {self.spent}")

    @property
    def rising(self) -> tuple[float, ...]:
        """The solve rates of the closest curve that never falls."""
        return tuple(float(rate) for rate in isotonic_regression(self.solved).x)

    def arrival(self, target: float) -> float | None:
        """Return what is spent when the solve rate is `target`; None when it never is."""
        rates = self.rising
        if rates[0] >= target:
            return self.spent[0]
        for i in range(1, len(rates)):
            if rates[i] >= target:
                share = (target - rates[i - 1]) / (rates[i] - rates[i - 1])
                return self.spent[i - 1] + share * (self.spent[i] - self.spent[i - 1])
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Bounds of a ratio; equal when nothing was censored, and `high` may be infinite."""

    low: float
    high: float


def ratio(above: Curve, below: Curve, target: float) -> Ratio | None:
    """Return what `above` spends until the target over what `below` does.

    None when one of them is there from the start, or neither ever is: nothing is known of the ratio then.
    """
    first, second = above.arrival(target), below.arrival(target)
    if first == above.spent[0] or second == below.spent[0] or (first is None and second is None):
        return None
    if first is None and second is not None:
        return Ratio(low=above.spent[-1] / second, high=math.inf)
    if second is None and first is not None:
        return Ratio(low=0.0, high=first / below.spent[-1])
    assert first is not None and second is not None
    return Ratio(low=first / second, high=first / second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """The bounds of a median ratio over `n` runs, `censored` of them, and its bootstrap interval."""

    least: float
    most: float
    low: float
    high: float
    n: int
    censored: int


def median(ratios: Sequence[Ratio], *, samples: int = 2000, seed: int = 0) -> Median | None:
    """Return the median; None without a ratio.

    The interval is from the percentiles of resampled runs, its low end from the lower bounds and its high end
    from the upper ones. With few runs it is hardly wider than their range, and says less than 95 %.
    """
    if not ratios:
        return None
    lows, highs = (np.array([getattr(each, name) for each in ratios]) for name in ("low", "high"))
    drawn = np.random.default_rng(seed).integers(len(ratios), size=(samples, len(ratios)))
    return Median(
        least=_middle(lows),
        most=_middle(highs),
        low=float(np.quantile(_middles(lows[drawn]), LEVEL, method="lower")),
        high=float(np.quantile(_middles(highs[drawn]), 1 - LEVEL, method="higher")),
        n=len(ratios),
        censored=sum(each.low != each.high for each in ratios),
    )


def _middle(values: np.ndarray) -> float:
    return float(_middles(values[None])[0])


def _middles(rows: np.ndarray) -> np.ndarray:
    """Return the median of each row; a mean with infinity is infinite, without a warning."""
    ordered = np.sort(rows, axis=1)
    half = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return np.asarray(ordered[:, half])
    return np.asarray((ordered[:, half - 1] + ordered[:, half]) / 2)
