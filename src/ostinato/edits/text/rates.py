"""Survival rates of a proposed text: two numbers in [0, 1], as in editors' telemetry.

`four_gram` compares the text of now with the proposed text: shared runs of four characters over the larger of
the two counts. `no_revert` measures whether the text of now went back towards the text before::

    no_revert = 1 - (like(now, before) - like(proposed, before)) / (1 - like(proposed, before)), in [0, 1]

Both compare text without formatting, unless the proposal itself was formatting.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

GRAM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Survival of a proposal, or of one of its hunks.

    >>> Rates(four_gram=1.0, no_revert=1.0).four_gram
    1.0
    """

    four_gram: float
    no_revert: float


GONE = Rates(four_gram=0.0, no_revert=0.0)


def rates(now: Sequence[str], proposed: Sequence[str], before: Sequence[str]) -> Rates:
    """Return the rates of three texts as words; as lines for a proposal that is formatting only."""
    current, text, original = "".join(now), "".join(proposed), "".join(before)
    if not text:
        back = contained(original, current)
        return Rates(four_gram=1.0 - back, no_revert=1.0 - back)
    return Rates(four_gram=alike(current, text), no_revert=1.0 - _went_back(current, text, original))


def alike(one: str, other: str) -> float:
    """Return 1 for equal texts, 0 for texts without a common run of four characters (fewer if one is
    shorter)."""
    if one == other:
        return 1.0
    if not one or not other:
        return 0.0
    size = min(GRAM, len(one), len(other))
    grams, others = _grams(one, size), _grams(other, size)
    return (grams & others).total() / max(grams.total(), others.total())


def contained(part: str, whole: str) -> float:
    """Return the share of `part` that occurs in `whole`; 0 when either is empty."""
    if not part or not whole:
        return 0.0
    size = min(GRAM, len(part), len(whole))
    grams = _grams(part, size)
    return (grams & _grams(whole, size)).total() / grams.total()


def mean(parts: Sequence[tuple[float, Rates]]) -> Rates:
    """Return the mean of hunks' rates, by their weights."""
    total = sum(weight for weight, _ in parts)
    return Rates(
        four_gram=sum(weight * part.four_gram for weight, part in parts) / total,
        no_revert=sum(weight * part.no_revert for weight, part in parts) / total,
    )


def _went_back(current: str, text: str, original: str) -> float:
    if current == original:
        return 1.0
    if current == text:
        return 0.0
    start = alike(text, original)
    return min(1.0, max(0.0, (alike(current, original) - start) / (1.0 - start))) if start < 1.0 else 0.0


def _grams(text: str, size: int) -> Counter[str]:
    return Counter(text[at : at + size] for at in range(len(text) - size + 1))
