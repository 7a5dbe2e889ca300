"""Agreement between two labellings of the same lines: precision, recall, and Cohen's kappa."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How well one labelling finds what another one calls positive.

    >>> agreement([True, True, False, False], [True, False, False, False]).recall
    0.5
    """

    n: int
    precision: float
    """Of what was found, the share that is positive; 1 when nothing was found."""
    recall: float
    kappa: float
    """1 for the same labels, 0 for no better than chance (Cohen 1960)."""


def agreement(truth: Sequence[bool], found: Sequence[bool]) -> Agreement:
    """Return the agreement of `found` with `truth`. Raises ValueError for none or for unequal lengths."""
    n = len(truth)
    if n == 0 or n != len(found):
        raise ValueError(f"two labellings of the same lines are needed, got {n} and {len(found)}")
    both = sum(a and b for a, b in zip(truth, found, strict=True))
    same = sum(a == b for a, b in zip(truth, found, strict=True)) / n
    positive, named = sum(truth), sum(found)
    chance = (positive * named + (n - positive) * (n - named)) / n**2
    return Agreement(
        n=n,
        precision=both / named if named else 1.0,
        recall=both / positive if positive else 1.0,
        kappa=(same - chance) / (1 - chance) if chance < 1 else 1.0,
    )
