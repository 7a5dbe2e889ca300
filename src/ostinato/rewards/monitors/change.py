"""A test for a change between what a behaviour was and what it is, with a stated rate of false alarms.

Sessions of one person resemble each other and behaviours are skewed, so the test permutes people: under no
change every way to deal the people to `before` and `after` is as likely. The level is exact for exchangeable
people (Phipson and Smyth 2010: the observed deal counts as one of the permutations, so p is never 0).

For a stream, `Cusum` watches one session after another. Its limit is set by drawing people of the history
again, with all of their sessions: once for what would have been usual, once for the stream that follows. So
the chance of an alarm within the horizon allows for habits, for people who bring many sessions, and for a
usual value that is itself an estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PERMUTATIONS = 1_999
PATHS = 2_500
LEAST_HISTORY = 20
"""Sessions without which nothing counts as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The change of a mean between two groups of people.

    >>> Shift(before=0.1, after=0.3, p=0.001).rise > 0
    True
    """

    before: float
    after: float
    p: float
    """The chance of a change at least this large in either direction, if nothing had changed."""

    @property
    def rise(self) -> float:
        return self.after - self.before


def shift(before: Sequence[tuple[str, float]], after: Sequence[tuple[str, float]], *, seed: int = 0) -> Shift:
    """Return the change from `before` to `after`, each a list of (person, value of a session).

    A person who is in both is dealt as two people. Raises ValueError when one side is empty.
    """
    if not before or not after:
        raise ValueError(f"a change needs sessions on both sides, got {len(before)} and {len(after)}")
    sums, counts, size = _of_people(before, after)
    chance = np.random.default_rng(seed)
    deals = np.tile(np.arange(len(sums)) < size, (PERMUTATIONS + 1, 1))
    deals[1:] = chance.permuted(deals[1:], axis=1)
    changes = np.abs(_differences(sums, counts, deals))
    hits = int((changes[1:] >= changes[0] - 1e-12).sum())
    return Shift(
        before=float(sums[:size].sum() / counts[:size].sum()),
        after=float(sums[size:].sum() / counts[size:].sum()),
        p=(hits + 1) / (PERMUTATIONS + 1),
    )


def _of_people(
    before: Sequence[tuple[str, float]], after: Sequence[tuple[str, float]]
) -> tuple[Floats, Floats, int]:
    """Return the sum and the number of each person's sessions, and how many of the people come before."""
    people: dict[tuple[int, str], list[float]] = {}
    for side, some in enumerate((before, after)):
        for person, value in some:
            people.setdefault((side, person), []).append(value)
    sums = np.array([sum(values) for values in people.values()])
    counts = np.array([float(len(values)) for values in people.values()])
    return sums, counts, sum(side == 0 for side, _ in people)


def _differences(sums: Floats, counts: Floats, deals: NDArray[np.bool_]) -> Floats:
    """Return the mean over sessions after, minus that before, for each deal (deals, people)."""
    before = deals.astype(np.float64)
    after = 1 - before
    return np.asarray((after @ sums) / (after @ counts) - (before @ sums) / (before @ counts))


@dataclass(frozen=True, slots=True)
class Resampled:
    """Histories and streams as they could have come from the people of one history.

    >>> Resampled.of(["ada", "ben"] * 10, horizon=5, paths=3).streams.shape
    (3, 5)
    """

    person: NDArray[np.intp]
    """The person of each session of the history, (sessions + 2). Two more are of people of their own."""
    drawn: Floats
    """How often each person is in each other history, (paths, people)."""
    streams: NDArray[np.int32]
    """The sessions of each stream, as numbers into the history, (paths, horizon)."""

    @classmethod
    def of(cls, people: Sequence[str], *, horizon: int, paths: int = PATHS, seed: int = 0) -> "Resampled":
        """Draw people with replacement, each with all of their sessions.

        `people` names the person of each session, oldest first. A stream has its sessions in the order of
        the history, so that those of a person come as close together as they did there; one that is longer
        than the history is several such, one after another.
        """
        chance = np.random.default_rng(seed)
        _, person = np.unique(np.asarray(people, dtype=object).astype(str), return_inverse=True)
        known = int(person.max()) + 1
        drawn = np.ones((paths, known + 2))
        drawn[:, :known] = chance.multinomial(known, np.full(known, 1 / known), size=paths)
        person = np.append(person, [known, known + 1])
        by_person, counts = np.argsort(person, kind="stable"), np.bincount(person)
        first = np.cumsum(counts) - counts
        streams = np.empty((paths, horizon), dtype=np.int32)
        for stream in streams:
            for start in range(0, horizon, len(person)):
                part = stream[start : start + len(person)]
                some = chance.integers(len(counts), size=len(part))
                some = some[: np.searchsorted(np.cumsum(counts[some]), len(part)) + 1]
                of_each = counts[some]
                own = np.arange(of_each.sum()) - np.repeat(np.cumsum(of_each) - of_each, of_each)
                part[:] = np.sort(by_person[np.repeat(first[some], of_each) + own][: len(part)])
        return cls(person, drawn, streams)


class Cusum:
    """A cumulative sum in one direction: it rises while values lie above what was usual (Page 1954).

    `history` are values without a change; a value counts when it exceeds their mean by half of `delta`
    standard deviations. One more value as large as the largest is assumed, or one of 1 where all are 0, since
    what was not seen yet may still be usual. `resampled` are the ways in which the same history could have
    gone. The limit is the order statistic that a further path exceeds with a chance of at most `alarm_rate`.
    Raises ValueError for fewer than 20 values, and for a rate that so many paths cannot show.
    """

    def __init__(
        self, history: Sequence[float], resampled: Resampled, *, alarm_rate: float = 0.01, delta: float = 0.5
    ) -> None:
        if len(history) < LEAST_HISTORY:
            raise ValueError(f"a usual value needs at least {LEAST_HISTORY} sessions, got {len(history)}")
        seen = np.asarray(history, dtype=np.float64)
        largest = seen.max() if seen.max() > 0 else 1.0
        values = np.append(seen, [largest, seen.min()])
        spread = max(float(values.std(ddof=1)), 1e-9)
        self._usual = float(values.mean()) + delta * spread / 2
        self._scale = spread
        self.height = 0.0
        self.began: int | None = None
        """The number, from 0, of the value with which the present rise began: the estimated change point."""
        self._seen = 0
        means, spreads = _moments(values, resampled)
        highest = np.zeros(len(means))
        height = np.zeros(len(means))
        for step in resampled.streams.T:
            height = np.maximum(0.0, height + (values[step] - means) / spreads - delta / 2)
            highest = np.maximum(highest, height)
        self.limit = _exceeded_at_most(highest, alarm_rate) + 1e-9

    def add(self, value: float) -> bool:
        """Take one value in and return whether the alarm sounds."""
        self.height = max(0.0, self.height + (value - self._usual) / self._scale)
        if self.height == 0.0:
            self.began = None
        elif self.began is None:
            self.began = self._seen
        self._seen += 1
        return self.height > self.limit


def _exceeded_at_most(drawn: Floats, rate: float) -> float:
    """Return the order statistic of `drawn` (paths) that one more draw exceeds with chance `rate` at most.

    The j-th of n is exceeded with chance 1 - j / (n + 1). Raises ValueError where even the largest is
    exceeded more often.
    """
    rank = math.ceil((1 - rate) * (len(drawn) + 1))
    if rank > len(drawn):
        raise ValueError(
            f"{len(drawn)} paths show a rate of {1 / (len(drawn) + 1):.2g} at the least, not {rate:g}"
        )
    return float(np.sort(drawn)[rank - 1])


def _moments(values: Floats, resampled: Resampled) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of each of the other histories, (paths) each."""
    counts, sums, squares = (
        resampled.drawn @ np.bincount(resampled.person, weights=each)
        for each in (np.ones_like(values), values, values**2)
    )
    means = sums / counts
    return means, np.sqrt(np.maximum((squares - counts * means**2) / (counts - 1), 1e-18))
