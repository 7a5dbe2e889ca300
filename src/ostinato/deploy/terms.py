"""The terms of a trial, which are settled before its first session, and what is observed in it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ostinato.deploy.budget import FIRST_CHAIN
from ostinato.extend import Registry, guarded

HARM = 0.05
"""The chance of a false roll-back in one trial."""
BETTER, SUITE, CHEAPER = "better", "suite", "cheaper"
Cost = Callable[["TrialSession"], float | None]
"""The cost of one session, of which less is better; None where it is not known."""
CLAIMS: Registry[Cost | None] = Registry(
    "claim", {BETTER: None, SUITE: None, CHEAPER: lambda session: session.tokens}
)
"""The claims that a trial may set out to show of its challenger: that it is better with people; that it is
better on the run's suite, as the gate has shown, and not worse with people by the margin; or that a session
costs less, and is not worse by the margin."""


def claim(name: str) -> Callable[[Cost], Cost]:
    """Return a decorator that adds a claim, for `[live] claim = "NAME"`: what a session costs falls, and its
    reward is not lower by the margin.

    The function reads one session of a trial and returns its cost, None where nothing is known. One that
    fails ends the look, before any promotion, with its file and line.
    """

    def add(function: Cost) -> Cost:
        def cost(session: TrialSession) -> float | None:
            value = function(session)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"it returned {value}, which is no cost to compare")
            return value

        CLAIMS.add(name, guarded(f"claim {name}", cost))
        return function

    return add


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The terms that are settled before the first session.

    >>> Trial(experiment="e1", share=0.5, horizon=800, alpha=0.02).claim
    'better'
    """

    experiment: str
    """Its id, which also salts the assignment of users to arms."""
    share: float
    """The share of users who are assigned to the challenger."""
    horizon: int
    """The number of sessions after which the trial is over; later ones are not looked at."""
    alpha: float
    """The chance of a false promotion."""
    chain: str = FIRST_CHAIN
    """The name of the chain of the budget that `alpha` comes from."""
    harm: float = HARM
    """The chance of a false roll-back: half for the reward, half for all guardrails together."""
    claim: str = BETTER
    """The claim that it sets out to show of its challenger, a name in `CLAIMS`."""
    source: str = ""
    """The hash of the plug-in that brought the claim; empty for ours."""
    margin: float = 0.0
    """The loss of reward per session that would be too much, for every claim but BETTER."""
    guardrails: Mapping[str, float] = field(default_factory=dict)
    """The limit of each guardrail: the rise that is too much, whatever the reward does."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """The multiple of the champion's mean from which a guardrail's rise counts; 1 where none is given."""
    champion: str = "champion"
    challenger: str = "challenger"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.horizon < 1 or not 0 < self.alpha < 1:
            raise ValueError(
                f"trial {self.experiment}: share {self.share} and alpha {self.alpha} lie between 0 and 1, "
                f"horizon {self.horizon} is 1 at least"
            )
        if self.claim not in CLAIMS:
            raise ValueError(f"trial {self.experiment}: no claim {self.claim!r} is loaded: `use` its plug-in")
        if (self.claim == BETTER) != (self.margin == 0):
            raise ValueError(f"trial {self.experiment}: every claim but 'better' has a margin, {self.margin}")

    @property
    def level(self) -> float:
        """The chance of error on each side of a bound: claims with a margin can promote in two ways, better
        and what is claimed, and each has half of `alpha`.
        """
        return self.alpha if self.claim == BETTER else self.alpha / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSession:
    """One session of one user on one arm, old enough that its reward is settled.

    >>> TrialSession(arm="champion", user="ada", at=0.0, value=1.0, tokens=80).user
    'ada'
    """

    arm: str
    user: str
    at: float
    """Its start, in seconds since the epoch."""
    value: float
    """Its reward."""
    tokens: float
    """The number of tokens that the model sampled in it."""
    harms: Mapping[str, float] = field(default_factory=dict)
    """The outcome by guardrail; a session without one for a guardrail leaves it out."""
    gains: Mapping[str, float] = field(default_factory=dict)
    """What is reported beside and decides nothing, as shares or amounts of 0 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """How often one user came, from their assignment to an arm until now.

    >>> Attendance(arm="champion", user="ada", sessions=3).gone is None
    True
    """

    arm: str
    user: str
    sessions: int
    """The sessions that they began."""
    gone: float | None = None
    """The share of their sessions after which they did not come back in time, of those that are old enough to
    tell; None while none is."""
    earlier: int = 0
    """The sessions that they began before anybody met the challenger."""
