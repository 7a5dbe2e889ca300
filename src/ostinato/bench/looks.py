"""Looks at recorded sessions: what a candidate would have earned where somebody else acted.

Each session counts with the ratio of the candidate's chance of all that was done in it to the chance that it
had; what tools and people did cancels out. Ratios are cut at the root of the number of sessions, which keeps
the estimate consistent (Ionides, "Truncated importance sampling", 2008). The mean is divided by their sum.

A look orders candidates before people meet them, and promotes none. It knows nothing where few sessions carry
the weight, so then it says so. It may only see sessions that no candidate was trained on: of the others the
candidate remembers which ones were praised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.deploy.statistics import Estimate, Floats, Interval, interval

LEAST_SESSIONS, LEAST_USERS = 100.0, 10.0
"""The effective numbers of sessions and of users without which nothing is known."""
MOST_CUT = 0.02
"""The largest share of sessions whose ratio is cut; beyond it the cut decides, and not the sessions."""
LEVEL = 0.05
"""The chance that any two candidates which are alike are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSession:
    """A session that was rewarded, as the candidates see it.

    >>> SeenSession(user="ada", reward=1.0, log_ratios={7: -0.25}).log_ratios[7]
    -0.25
    """

    user: str
    reward: float
    log_ratios: Mapping[int, float]
    """The logarithm of each version's chance of all sampled tokens over the chance that they had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The findings on one candidate.

    >>> Look(version=7, sessions=0.0, users=0.0, cut=0.0, gain=None).known
    False
    """

    version: int
    sessions: float
    """The effective number of sessions, (Σw)² / Σw²."""
    users: float
    """The effective number of users, in the same way."""
    cut: float
    """The share of sessions whose ratio was cut."""
    gain: Interval | None
    """The change of the reward a session against what was recorded; None where it is not known."""

    @property
    def known(self) -> bool:
        return self.gain is not None

    @property
    def words(self) -> str:
        """The finding in one line for a person."""
        if not self.sessions:
            return "no session to look at: each was trained on, or is too young"
        what = f"{self.gain} reward a session" if self.gain is not None else "not known, too little to go by"
        return f"{what}; worth {self.sessions:.0f} sessions of {self.users:.0f} users, {self.cut:.1%} cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The candidates that are known, the most promising one first.

    >>> Ordering(looks=(), apart=()).first is None
    True
    """

    looks: tuple[Look, ...]
    """Those that are known by their gain, then the others as they were named."""
    apart: tuple[tuple[int, int, Interval], ...]
    """The pairs (better, worse) that are told apart, with the difference."""

    @property
    def first(self) -> int | None:
        """The candidate that is told apart from every other one; None where there is none such."""
        worse = {below for _, below, _ in self.apart}
        best = [each.version for each in self.looks if each.known and each.version not in worse]
        others = len(self.looks) - 1
        return best[0] if len(best) == 1 and len(self.looks) > 1 and len(worse) == others else None


def look(sessions: Sequence[SeenSession], versions: Sequence[int]) -> Ordering:
    """Return what recorded sessions tell of these versions, where those of one user are one piece of
    evidence.
    """
    users = np.unique([each.user for each in sessions], return_inverse=True)[1]
    rewards = np.array([each.reward for each in sessions])
    weighed = {v: _Weighed.of([each.log_ratios[v] for each in sessions], rewards, users) for v in versions}
    recorded = _Weighed.of([0.0] * len(sessions), rewards, users)
    looks = [
        Look(
            version=version,
            sessions=each.effective,
            users=each.effective_users,
            cut=each.cut,
            gain=interval(_difference(each, recorded), LEVEL / 2) if each.enough else None,
        )
        for version, each in weighed.items()
    ]
    looks.sort(key=lambda each: -each.gain.estimate if each.gain is not None else np.inf)
    known = [each.version for each in looks if each.known]
    pairs = [(a, b) for n, a in enumerate(known) for b in known[n + 1 :]]
    level = LEVEL / 2 / max(1, len(pairs))
    between = [(a, b, interval(_difference(weighed[a], weighed[b]), level)) for a, b in pairs]
    return Ordering(looks=tuple(looks), apart=tuple(each for each in between if each[2].low > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    """The sums of one candidate by user, (users,)."""

    sums: Floats
    weights: Floats
    effective: float
    cut: float

    @classmethod
    def of(cls, log_ratios: Sequence[float], rewards: Floats, users: NDArray[np.intp]) -> "_Weighed":
        logs = np.asarray(log_ratios, dtype=float)
        most = np.log(max(1, len(logs))) / 2
        weights = np.exp(np.minimum(logs, most))
        count = int(users.max()) + 1 if len(users) else 0
        square = float(np.square(weights).sum())
        return cls(
            sums=np.bincount(users, weights=weights * rewards, minlength=count).astype(np.float64),
            weights=np.bincount(users, weights=weights, minlength=count).astype(np.float64),
            effective=float(weights.sum()) ** 2 / square if square else 0.0,
            cut=float(np.mean(logs > most)) if len(logs) else 0.0,
        )

    @property
    def effective_users(self) -> float:
        square = float(np.square(self.weights).sum())
        return float(self.weights.sum()) ** 2 / square if square else 0.0

    @property
    def enough(self) -> bool:
        few = self.effective < LEAST_SESSIONS or self.effective_users < LEAST_USERS
        return not few and self.cut <= MOST_CUT


def _difference(one: _Weighed, other: _Weighed) -> Estimate:
    """Return the difference of two means over the same users, with the jackknife's error.

    The degrees of freedom are those of the candidate that rests on fewer users, less one.
    """
    whole, without = _means(one), _without(one) - _without(other)
    difference = whole - _means(other)
    users = len(without)
    error = np.sqrt((users - 1) / users * np.square(without - difference).sum())
    return Estimate(
        value=np.array(difference),
        error=np.array(error),
        freedom=np.array(max(1.0, min(one.effective_users, other.effective_users) - 1)),
    )


def _means(one: _Weighed) -> float:
    return float(one.sums.sum() / one.weights.sum())


def _without(one: _Weighed) -> Floats:
    return np.asarray((one.sums.sum() - one.sums) / (one.weights.sum() - one.weights), dtype=np.float64)
