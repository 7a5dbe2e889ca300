"""The A/B on live traffic: champion against challenger, judged as often as one likes until its end.

What is claimed is settled before the first session, in a `Trial`, and tested against these hypotheses:

- PROMOTE refutes "the challenger's reward a session is not higher"; wrongly with chance `Trial.alpha`,
  which the budget gives.
- PROMOTE_CHEAPER refutes "it is lower by `margin` or more" and "the challenger samples no fewer tokens";
  wrongly with chance `Trial.alpha`.
- ROLL_BACK refutes "the reward is not lower and no guardrail rose by more than its limit"; wrongly with
  chance `HARM`.

Both promotions ask besides that every guardrail is shown to have risen by less than its limit (at `HARM`).
Users are what was dealt, so users are what is counted: one weighs n / (1 + (n - 1) · `ALIKE`) for n
sessions, and the errors are a jackknife over users. So nobody decides a trial alone by being busy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

import numpy as np

from ostinato.deploy.statistics import (
    Estimate,
    Flags,
    Floats,
    Interval,
    clustered,
    interval,
    minus,
    sample_ratio,
)
from ostinato.types import Decision, Verdict

MIN_USERS = 8
"""Per arm; below that no error estimate can be trusted."""
ALIKE = 0.2
"""The likeness that two sessions of one user are taken to have when users are weighed. It decides how
narrow the intervals are, not whether they hold."""
HARM = 0.05
"""Chance of a false roll-back in one trial: half of it for the reward, half for all guardrails together."""
VOID = 100.0
"""Arms whose sizes are so many times likelier under another share void the trial: 1 in 100 sound trials at
most."""


class Claim(StrEnum):
    """The claim that a trial sets out to show of its challenger."""

    BETTER = "better"
    CHEAPER = "cheaper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """Something that may not rise by more than `limit`, whatever the reward does."""

    name: str
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The terms that are settled before the first session.

    >>> Trial(experiment="e1", share=0.5, horizon=800, alpha=0.02).claim
    <Claim.BETTER: 'better'>
    """

    experiment: str
    """Its id, which also salts the dealing of users."""
    share: float
    """The share of users who are dealt to the challenger."""
    horizon: int
    """Sessions after which the trial is over; later ones are not looked at."""
    alpha: float
    """Chance of a false promotion."""
    claim: Claim = Claim.BETTER
    margin: float = 0.0
    """The loss of reward a session that would be too much; used by CHEAPER alone."""
    guardrails: tuple[Guardrail, ...] = ()
    champion: str = "champion"
    challenger: str = "challenger"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.horizon < 1 or not 0 < self.alpha < 1:
            raise ValueError(
                f"trial {self.experiment}: share {self.share} and alpha {self.alpha} lie between 0 and 1, "
                f"horizon {self.horizon} is 1 at least"
            )
        if (self.claim is Claim.CHEAPER) != (self.margin > 0):
            raise ValueError(f"trial {self.experiment}: a margin above 0 goes with the claim 'cheaper' alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One session of one user on one arm, old enough that its reward is settled.

    >>> Observation(arm="champion", user="ada", at=0.0, value=1.0, tokens=80).user
    'ada'
    """

    arm: str
    user: str
    at: float
    """When it began, in seconds since the epoch."""
    value: float
    """Its reward."""
    tokens: float
    """The number of tokens that the model sampled in it."""
    harms: Mapping[str, float] = field(default_factory=dict)
    """The outcome by guardrail; a session that says nothing of one leaves it out."""


def judge(
    version: int, trial: Trial, observations: Sequence[Observation], before: Mapping[str, float] | None = None
) -> Verdict:
    """A verdict on the challenger's `version`, from the first `horizon` sessions of the trial.

    `before`: by user, the mean reward of their sessions from before the trial; what it explains is taken
    out of the comparison. The first verdict that is not HOLD is the trial's; a trial whose dealing failed
    is void, a HOLD that says so.
    """
    seen = sorted(observations, key=lambda o: o.at)[: trial.horizon]
    dealt: dict[str, str] = {}
    both = sorted({o.user for o in seen if dealt.setdefault(o.user, o.arm) != o.arm})
    arms = {name: sum(arm == name for arm in dealt.values()) for name in (trial.champion, trial.challenger)}
    evidence = {
        "experiment": trial.experiment,
        "claim": trial.claim,
        "alpha": trial.alpha,
        "harm": HARM,
        "sessions": len(seen),
        "horizon": trial.horizon,
        "users": arms,
    }
    if problem := _void(trial, arms, both):
        evidence["void"] = problem
        return Verdict(version=version, decision=Decision.HOLD, reason=f"void: {problem}", evidence=evidence)
    if few := [f"{name} has {n}" for name, n in arms.items() if n < MIN_USERS]:
        reason = f"too few users, {', '.join(few)}: a verdict needs {MIN_USERS} on each arm"
        return Verdict(version=version, decision=Decision.HOLD, reason=reason, evidence=evidence)
    bounds = _Bounds.of(trial, seen, before or {})
    decision, reason = bounds.decide(trial)
    return Verdict(version=version, decision=decision, reason=reason, evidence=evidence | asdict(bounds))


def _void(trial: Trial, arms: Mapping[str, int], both: Sequence[str]) -> str:
    """Why the arms cannot be compared; empty when they can."""
    if both:
        return f"{len(both)} users met both arms, {both[0]!r} is one: users must stay where they were dealt"
    challengers, users = arms[trial.challenger], sum(arms.values())
    if sample_ratio(challengers, users, trial.share) > VOID:
        return (
            f"{challengers} of {users} users are on {trial.challenger!r} where a share of {trial.share:g} "
            "was set: find out who was lost before trying again"
        )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """The estimates, challenger minus champion, between bounds that hold at every look."""

    promoting: Interval
    """The change of the reward a session, each side at `Trial.alpha`."""
    harming: Interval
    """The same at the level of a roll-back."""
    tokens: Interval
    """The change of the tokens a session, each side at `Trial.alpha`."""
    rails: dict[str, Interval]
    """The change by guardrail, each side at the level of a roll-back."""
    within: dict[str, Interval]
    """The change by guardrail, each side at `HARM`."""

    @classmethod
    def of(cls, trial: Trial, seen: Sequence[Observation], before: Mapping[str, float]) -> "_Bounds":
        fraction = len(seen) / trial.horizon
        reward = _compare(trial, [(o, o.value) for o in seen], before)
        tokens = _compare(trial, [(o, o.tokens) for o in seen], {})
        rails = {
            rail.name: _compare(trial, [(o, o.harms[rail.name]) for o in seen if rail.name in o.harms], {})
            for rail in trial.guardrails
        }
        each = HARM / 2 / max(1, len(rails))
        return cls(
            promoting=interval(reward, trial.alpha, fraction),
            harming=interval(reward, HARM / 2, fraction),
            tokens=interval(tokens, trial.alpha, fraction),
            rails={name: interval(rise, each, fraction) for name, rise in rails.items()},
            within={name: interval(rise, HARM, fraction) for name, rise in rails.items()},
        )

    def decide(self, trial: Trial) -> tuple[Decision, str]:
        limits = {rail.name: rail.limit for rail in trial.guardrails}
        reward = f"{_shown(self.promoting)} reward a session"
        if violated := [name for name, rise in self.rails.items() if rise.low > limits[name]]:
            shown = ", ".join(f"{name} rose by {_shown(self.rails[name])}" for name in violated)
            return Decision.ROLL_BACK, f"guardrail: {shown}; {reward}"
        if self.harming.high < 0:
            return Decision.ROLL_BACK, f"worse: {_shown(self.harming)} reward a session"
        doubtful = [name for name, rise in self.within.items() if rise.high >= limits[name]]
        better = self.promoting.low > 0
        cheaper = trial.claim is Claim.CHEAPER and self.promoting.low > -trial.margin and self.tokens.high < 0
        if (better or cheaper) and doubtful:
            shown = ", ".join(f"{name} {_shown(self.within[name])}" for name in doubtful)
            return Decision.HOLD, f"not shown to stay within the guardrails: {shown}; {reward}"
        if better:
            return Decision.PROMOTE, f"better: {reward}"
        if cheaper:
            saved = f"{_shown(self.tokens)} tokens a session"
            return Decision.PROMOTE_CHEAPER, f"no worse by {trial.margin:g} and cheaper: {reward}, {saved}"
        return Decision.HOLD, f"not shown to be {trial.claim}: {reward}"


def _shown(found: Interval) -> str:
    return f"{found.estimate:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _compare(
    trial: Trial, values: Sequence[tuple[Observation, float]], before: Mapping[str, float]
) -> Estimate:
    """Challenger minus champion, from one value of each session."""
    arm_of = {o.user: o.arm for o, _ in values}
    users = {user: index for index, user in enumerate(arm_of)}
    member, worth = [users[o.user] for o, _ in values], np.array([value for _, value in values])
    return effect(
        np.bincount(member, minlength=len(users)).astype(np.float64),
        np.asarray(np.bincount(member, weights=worth, minlength=len(users)), dtype=np.float64),
        np.array([arm == trial.challenger for arm in arm_of.values()], dtype=bool),
        np.array([before.get(user, np.nan) for user in users], dtype=float),
    )


def effect(counts: Floats, sums: Floats, challenger: Flags, before: Floats) -> Estimate:
    """Challenger minus champion, for the mean value of a session.

    `counts`, `sums`: (..., users), sessions of each user so far and the sum of their values; `challenger`:
    True for those dealt to it; `before`: what is known of each from before, NaN for newcomers. The last two
    have the shape (users,) or one that goes with the first two.
    """
    there = counts > 0
    means = sums / np.where(there, counts, 1.0)
    weights = np.where(there, counts / (1 + (counts - 1) * ALIKE), 0.0)
    means = _without(before, means, weights, challenger)
    theirs, ours = np.where(challenger, weights, 0.0), np.where(challenger, 0.0, weights)
    arms = clustered(theirs * means, theirs), clustered(ours * means, ours)
    return minus(*_at_least_pooled(arms, (theirs, ours), means))


def _at_least_pooled(
    arms: tuple[Estimate, Estimate], weights: tuple[Floats, Floats], means: Floats
) -> tuple[Estimate, Estimate]:
    """Each arm's error, but no less than users who vary as those of both arms together would give it.

    A small arm in which a rare thing happened to nobody has no error of its own: anything would be shown.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = [np.nan_to_num(w / w.sum(axis=-1, keepdims=True)) for w in weights]
        squares = [np.square(share).sum(axis=-1) for share in shares]
        spread = sum(
            np.square(np.nan_to_num(share * (means - arm.value[..., None]) / (1 - share))).sum(axis=-1)
            for share, arm in zip(shares, arms, strict=True)
        )
        variance = spread / sum(squares)
    first, second = (
        replace(arm, error=np.maximum(arm.error, np.sqrt(np.nan_to_num(variance) * square)))
        for arm, square in zip(arms, squares, strict=True)
    )
    return first, second


def _without(before: Floats, means: Floats, weights: Floats, challenger: Flags) -> Floats:
    """`means` less what `before` explains of them, the slope for each user estimated from all others.

    Source: Deng, Xu, Kohavi, Walker, "Improving the sensitivity of online controlled experiments", WSDM 2013;
    leaving the user out keeps the comparison unbiased however few users there are.
    """
    known = np.isfinite(before)
    w = weights * known
    x = np.where(known, before, 0.0)
    x = np.where(known, x - _centre(x, known.astype(np.float64)), 0.0)
    theirs, ours = _centre(means, w * challenger), _centre(means, w * ~challenger)
    spread = w * np.square(x)
    product = w * x * (means - np.where(challenger, theirs, ours))
    others = spread.sum(axis=-1, keepdims=True) - spread
    usable = (known.sum(axis=-1, keepdims=True) >= MIN_USERS) & (others > 0)
    slope = (product.sum(axis=-1, keepdims=True) - product) / np.where(usable, others, 1.0)
    return np.asarray(means - np.where(usable, slope, 0.0) * x)


def _centre(values: Floats, weights: Floats) -> Floats:
    weight = weights.sum(axis=-1, keepdims=True)
    return np.asarray((values * weights).sum(axis=-1, keepdims=True) / np.where(weight > 0, weight, 1.0))
