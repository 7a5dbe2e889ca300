"""The plan of a trial: how many sessions and days an effect of a given size needs, before it begins.

A user with n sessions varies by p (1 - p) (ρ + (1 - ρ) / n), where two sessions of a user are correlated by
ρ (Donner, Klar, "Design and analysis of cluster randomization trials in health research", 2000). The trial
takes out what a user's history explains (`effects.effect`): of m earlier sessions, the part ρ / (ρ + (1 - ρ)
/ m) of that which users differ in, if their habits stay (Deng, Xu, Kohavi, Walker, WSDM 2013). So more
sessions of the same users help only so far: where what is left hides the effect, more users are needed.

A team too small for two arms is compared with itself (`crossover.py`): a person with n sessions on both arms
together varies by 4 p (1 - p) (1 - ρ) / n, and by how much the gain differs between people.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from ostinato.deploy.statistics import Estimate, half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """The expectations of a trial before it begins.

    >>> Prospect(baseline=0.6, lift=0.0137, users=500, sessions_a_day=3.0).share
    0.5
    """

    baseline: float
    """The champion's rate of good sessions, between 0 and 1."""
    lift: float
    """The rise of that rate which the trial shall find, absolute."""
    users: int
    """The users of both arms together."""
    sessions_a_day: float
    """The sessions of one user in a day."""
    share: float = 0.5
    """The share of users on the challenger."""
    correlation: float = 0.2
    """The correlation of two sessions of one user."""
    history: float = 0.0
    """The sessions that each user had before the trial."""
    margin: float = 0.08
    """The loss with people that would be too much, for the claims that have a margin."""
    alpha: float = 0.0219
    """The chance of a false promotion; the first trial of a store has this one (`deploy.budget`)."""
    power: float = 0.8
    """The chance of finding the lift."""

    def __post_init__(self) -> None:
        for name in ("baseline", "share", "margin", "alpha", "power"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it lies between 0 and 1")
        if not 0 <= self.correlation < 1:
            raise ValueError(f"correlation is {self.correlation}: it is 0 or more, and below 1")
        if not self.history >= 0:
            raise ValueError(f"a history of {self.history:g} sessions of each user: it is 0 or more")
        if self.lift <= 0 or self.baseline + self.lift >= 1:
            raise ValueError(
                f"a lift of {self.lift:g} on {self.baseline:g}: it is above 0 and ends below a rate of 1"
            )
        if min(self.users * self.share, self.users * (1 - self.share)) < 2 or self.sessions_a_day <= 0:
            raise ValueError(f"{self.users} users, {self.sessions_a_day:g} sessions a day: too few")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """The size of a trial.

    >>> TrialPlan(sessions_each=None, sessions=None, days=None, users_needed=9000).days is None
    True
    """

    sessions_each: int | None
    """The sessions of each user; None where no number of them is enough."""
    sessions: int | None
    """The sessions of all users: the `horizon` of the trial."""
    days: int | None
    users_needed: int
    """The fewest users with whom four weeks are enough."""


FOUR_WEEKS = 28


def plan(prospect: Prospect) -> TrialPlan:
    """Return the size at which the trial finds the lift with the asked power, at its last look."""
    least = math.ceil(FOUR_WEEKS * prospect.sessions_a_day)
    needed = _users(prospect, least)
    limit = _variance(prospect, None) * _per_user(prospect, prospect.users)
    wanted = (prospect.lift / _quantiles(prospect, prospect.users)) ** 2
    if limit >= wanted:
        return TrialPlan(sessions_each=None, sessions=None, days=None, users_needed=needed)
    rate = prospect.baseline + prospect.lift / 2
    free = rate * (1 - rate) * (1 - prospect.correlation) * _per_user(prospect, prospect.users)
    each = max(1, math.ceil(free / (wanted - limit)))
    return TrialPlan(
        sessions_each=each,
        sessions=each * prospect.users,
        days=math.ceil(each / prospect.sessions_a_day),
        users_needed=needed,
    )


def _variance(prospect: Prospect, sessions: int | None) -> float:
    """Return the variance of one user's mean that their history leaves; None stands for endless sessions."""
    rate = prospect.baseline + prospect.lift / 2
    noise, alike = 1 - prospect.correlation, prospect.correlation
    known = alike / (alike + noise / prospect.history) if prospect.history and alike else 0.0
    own = 0.0 if sessions is None else noise / sessions
    return rate * (1 - rate) * (alike * (1 - known) + own)


def _per_user(prospect: Prospect, users: float) -> float:
    return 1 / (users * prospect.share) + 1 / (users * (1 - prospect.share))


def _quantiles(prospect: Prospect, users: float) -> float:
    """Return the distance, in standard errors, between no effect and one that is found with the power."""
    one = Estimate(value=np.array(0.0), error=np.array(1.0), freedom=np.array(max(1.0, users - 2)))
    return float(half_width(one, prospect.alpha, 1.0)) + float(ndtri(prospect.power))


def _users(prospect: Prospect, sessions: int) -> int:
    """Return the fewest users with whom so many sessions each are enough."""
    users = 4.0
    for _ in range(20):  # the quantile of Student's changes a little with the users
        variance = _variance(prospect, sessions) * _per_user(prospect, 1.0)
        users = max(4.0, variance * (_quantiles(prospect, users) / prospect.lift) ** 2)
    return math.ceil(users)


UNEQUAL = 1.8
"""The factor by which a mean over people of Pareto(1.5) activity varies more than one over equally busy ones:
the mean of their sessions times the mean of its inverse."""
DIFFER = 0.05
"""The standard deviation of the true gain between people."""
WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The power of one claim where people meet both arms in blocks of hours (`[live] assign = "block"`).

    >>> [rung.claim for rung in ladder(Prospect(baseline=0.6, lift=0.1, users=20, sessions_a_day=15.0))]
    ['better', 'suite', 'cheaper']
    """

    claim: str
    refuted: str
    """The hypothesis that a promotion refutes."""
    in_a_week: float
    """The gain with people that a week finds with the power; for a claim with a margin, the loss that a week
    rules out if people are served as well as before."""
    days: int | None
    """The days until `lift` is found, or a loss of `margin` ruled out; None where no number is enough."""

    @property
    def works(self) -> bool:
        """True where four weeks are enough."""
        return self.days is not None and self.days <= FOUR_WEEKS


def ladder(prospect: Prospect) -> list[Rung]:
    """Return what a team can show of a candidate within itself, the strongest claim first.

    Two ways to a promotion share the level of a claim with a margin (`terms.Trial.level`).
    """
    margin = f"people lose {prospect.margin:g} or more"
    rungs = {
        "better": ("people are served no better", prospect.lift, prospect.alpha),
        "suite": (f"the suite is solved no more; {margin}", prospect.margin, prospect.alpha / 2),
        "cheaper": (f"no fewer tokens are sampled; {margin}", prospect.margin, prospect.alpha / 2),
    }
    return [_rung(prospect, claim, *terms) for claim, terms in rungs.items()]


def _rung(prospect: Prospect, claim: str, refuted: str, distance: float, alpha: float) -> Rung:
    rate, people = prospect.baseline, prospect.users
    wide = _quantiles(replace(prospect, alpha=alpha), people + 1)  # of which one degree of freedom is lost
    noise = 4 * UNEQUAL * rate * (1 - rate) * (1 - prospect.correlation) / prospect.sessions_a_day
    left = (distance / wide) ** 2 * people - DIFFER**2
    return Rung(
        claim=claim,
        refuted=refuted,
        in_a_week=wide * math.sqrt((noise / WEEK + DIFFER**2) / people),
        days=math.ceil(noise / left) if left > 0 else None,
    )
