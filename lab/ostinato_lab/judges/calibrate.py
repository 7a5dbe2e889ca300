"""The calibration of a judge: how far it agrees with labels that are certain, beyond chance.

Pairs of one task resemble each other, so the interval is a bootstrap over tasks.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ostinato.bench.judge import RUBRIC, SIDES, QualityJudge, verdict
from ostinato.rewards.judge_client import NoVerdictError
from ostinato_lab.judges.pairs import Pair

RESAMPLES = 2000
AT_ONCE = 4
NAMES = {value: name for name, value in SIDES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Cohen's kappa over `pairs`, with its 95 % interval; 1 is full agreement, 0 what chance gives.

    >>> Agreement(kappa=0.5, low=0.3, high=0.7, agree=0.7, pairs=40).text
    '0.500 [0.300, 0.700], 70 % of 40 pairs'
    """

    kappa: float
    low: float
    high: float
    agree: float
    pairs: int

    @property
    def text(self) -> str:
        interval = f"{self.kappa:.3f} [{self.low:.3f}, {self.high:.3f}]"
        return f"{interval}, {100 * self.agree:.0f} % of {self.pairs} pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The result of a judge on labelled pairs; those without a verdict are in no figure but `silent`."""

    judge: str
    pairs: int
    answered: int
    silent: Mapping[str, int] = field(default_factory=dict)
    """Reason -> pairs without a verdict."""
    whole: Agreement | None = None
    """None when nothing was answered, or the answers have one value and the labels too."""
    aspects: Mapping[str, Agreement] = field(default_factory=dict)
    biased: float | None = None
    """The share of the answered pairs whose two orders contradict each other: the judge likes a place."""
    size: Agreement | None = None
    """The agreement of the rule that the smaller diff is better, on all pairs: what a judge must beat."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def calibrate(judge: QualityJudge, pairs: Sequence[Pair]) -> Calibration:
    """Ask the judge about every pair, in both orders, and hold its verdicts against the labels."""
    slots, silent = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(pair: Pair) -> tuple[float, float] | None:
        async with slots:
            try:
                return (await judge.opinion(pair.request, pair.first, pair.second))[pair.aspect]
            except NoVerdictError as error:
                silent[str(error)] += 1
                return None

    orders = await asyncio.gather(*(one(pair) for pair in pairs))
    answered = [(pair, each) for pair, each in zip(pairs, orders, strict=True) if each is not None]
    said = [(pair, NAMES[verdict(each)]) for pair, each in answered]
    by_aspect = {aspect: agreement([each for each in said if each[0].aspect == aspect]) for aspect in RUBRIC}
    return Calibration(
        judge=judge.name,
        pairs=len(pairs),
        answered=len(answered),
        silent=dict(silent),
        whole=agreement(said),
        aspects={aspect: each for aspect, each in by_aspect.items() if each is not None},
        biased=sum(one * other < 0 for _, (one, other) in answered) / len(answered) if answered else None,
        size=agreement([(pair, _smaller(pair)) for pair in pairs]),
    )


def agreement(said: Sequence[tuple[Pair, str]]) -> Agreement | None:
    """Return the agreement of what was said with the labels; None where kappa has no value."""
    labels = np.array([SIDES[pair.better] for pair, _ in said])
    verdicts = np.array([SIDES[word] for _, word in said])
    value = kappa(labels, verdicts)
    if np.isnan(value):
        return None
    names, cluster = np.unique([pair.cluster for pair, _ in said], return_inverse=True)
    members = [np.flatnonzero(cluster == number) for number in range(len(names))]
    rng = np.random.default_rng(0)
    drawn = [
        np.concatenate([members[number] for number in rng.integers(len(names), size=len(names))])
        for _ in range(RESAMPLES)
    ]
    values = np.array([kappa(labels[rows], verdicts[rows]) for rows in drawn])
    low, high = np.nanquantile(values, [0.025, 0.975]) if np.isfinite(values).any() else (-1.0, 1.0)
    agree = float((labels == verdicts).mean())
    return Agreement(kappa=value, low=float(low), high=float(high), agree=agree, pairs=len(said))


def kappa(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Return Cohen's kappa, (p_o - p_e) / (1 - p_e), of two ratings of the same things.

    p_o is the share of equal ratings, p_e that of two raters who rate by chance, each as often as they do
    (Cohen, "A coefficient of agreement for nominal scales", 1960). NaN where p_e is 1, or nothing is rated.

    >>> kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    0.5
    """
    if not len(one):
        return float("nan")
    observed = float((one == other).mean())
    chance = sum(float((one == value).mean() * (other == value).mean()) for value in np.unique(one))
    return float("nan") if chance >= 1 else (observed - chance) / (1 - chance)


def _smaller(pair: Pair) -> str:
    """Return the side whose diff has fewer lines."""
    gap = pair.second.count("\n") - pair.first.count("\n")
    return "first" if gap > 0 else "second" if gap < 0 else "tie"
