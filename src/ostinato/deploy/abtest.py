"""The A/B trial on live traffic: champion against challenger, judged any number of times until its end.

The claim is settled before the first session, in a `Trial`, and tested against these hypotheses:

- PROMOTE refutes "the challenger's reward per session is not higher"; wrongly with chance `Trial.alpha`,
  which comes from the budget.
- PROMOTE under the claim SUITE also refutes "it is lower by `margin` or more", after a gate that refuted "the
  suite is solved no more" at the same chance; wrongly with chance `Trial.alpha`.
- PROMOTE_CHEAPER refutes "it is lower by `margin` or more" and "the challenger samples no fewer tokens";
  wrongly with chance `Trial.alpha`.
- ROLL_BACK refutes "the reward is not lower and no guardrail rose by more than its limit"; wrongly with
  chance `Trial.harm`.
- INCONCLUSIVE is the verdict of a trial that reached its horizon and refuted nothing.

Both promotions also need every guardrail to be shown to have risen by less than its limit (at `Trial.harm`).
Users were assigned to arms at random, so users are counted, not sessions: a user with n sessions weighs
n / (1 + (n - 1) · `ALIKE`), and the errors are a jackknife over users. So no busy user decides a trial alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.special import ndtri

from ostinato.deploy.budget import FIRST_CHAIN
from ostinato.deploy.crossover import Met
from ostinato.deploy.statistics import (
    Estimate,
    Flags,
    Floats,
    Interval,
    clustered,
    half_width,
    interval,
    minus,
    sample_ratio,
)
from ostinato.types import Decision, Verdict
from ostinato.types.release import WITHIN, unit_of

MIN_USERS = 8
"""The fewest users per arm; with fewer, no error estimate can be trusted."""
ALIKE = 0.2
"""The assumed correlation of two sessions of one user in the weights of users. It decides how narrow the
intervals are, not whether they hold."""
HARM = 0.05
"""The chance of a false roll-back in one trial."""
POWER = 0.8
"""The chance with which a trial of the size that an inconclusive one asks for would promote."""
VOID = 100.0
"""The Bayes factor against the set share above which the sizes of the arms void a trial. At most 1 in 100
sound trials exceeds it."""


class Claim(StrEnum):
    """The claim that a trial sets out to show of its challenger."""

    BETTER = "better"
    SUITE = "suite"
    """Better on the run's suite, as the gate has shown, and not worse with people by the margin."""
    CHEAPER = "cheaper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The terms that are settled before the first session.

    >>> Trial(experiment="e1", share=0.5, horizon=800, alpha=0.02).claim
    <Claim.BETTER: 'better'>
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
    claim: Claim = Claim.BETTER
    margin: float = 0.0
    """The loss of reward per session that would be too much; used by SUITE and CHEAPER."""
    guardrails: Mapping[str, float] = field(default_factory=dict)
    """The limit of each guardrail: the rise that is too much, whatever the reward does."""
    champion: str = "champion"
    challenger: str = "challenger"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.horizon < 1 or not 0 < self.alpha < 1:
            raise ValueError(
                f"trial {self.experiment}: share {self.share} and alpha {self.alpha} lie between 0 and 1, "
                f"horizon {self.horizon} is 1 at least"
            )
        if (self.claim is Claim.BETTER) != (self.margin == 0):
            raise ValueError(f"trial {self.experiment}: the claims 'suite' and 'cheaper' alone have a margin")

    @property
    def level(self) -> float:
        """The chance of error on each side of a bound: claims with a margin can promote in two ways, better
        and what is claimed, and each has half of `alpha`.
        """
        return self.alpha if self.claim is Claim.BETTER else self.alpha / 2


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


def judge(
    version: int,
    trial: Trial,
    sessions: Sequence[TrialSession],
    before: Mapping[str, float] | None = None,
    *,
    closed: bool = False,
) -> Verdict:
    """Return a verdict on the challenger's `version`, from the first `horizon` sessions of the trial.

    A trial is over at its horizon, or when it is `closed` because no more sessions come.

    `before` maps a user to the mean reward of their sessions before the trial; what it explains is taken out
    of the comparison. The first verdict that is not HOLD is the trial's. A trial whose users are not on the
    arms they were assigned to is void: the verdict is a HOLD that says so.
    """
    counted = sorted(sessions, key=lambda session: session.at)[: trial.horizon]
    evidence, problem = grounds(trial, counted)
    if problem:
        return Verdict(version=version, decision=Decision.HOLD, reason=problem, evidence=evidence)
    bounds = _Bounds.of(trial, counted, before or {})
    decision, reason = bounds.decide(trial)
    evidence |= asdict(bounds)
    if decision.promotes and (met := _met(trial, counted)) is not None:
        carried = met.carried_over([each.value for each in counted])
        evidence["carry_over"] = asdict(carried)
        if carried.low > 0 or carried.high < 0:
            decision, reason = Decision.HOLD, f"withheld: directly after a change of arms {carried}; {reason}"
    if decision is Decision.INCONCLUSIVE and len(counted) < trial.horizon and not closed:
        decision = Decision.HOLD
    elif decision is Decision.INCONCLUSIVE:
        needed = still_needed(compare(trial, [(s, s.value) for s in counted], before or {}), trial.level)
        evidence["needed"] = None if needed is None else math.ceil(needed * len(counted))
        reason += f"; {_words(needed, len(counted), evidence['people'])}"
    return Verdict(version=version, decision=decision, reason=reason, evidence=evidence)


def still_needed(reward: Estimate, alpha: float) -> float | None:
    """Return how many times as large a trial must be to promote with `POWER`, if the estimate is the truth.

    That is the square of the wanted distance from zero in standard errors, divided by that of this trial; it
    holds for as many times more users who are as active. None when the challenger is not ahead at all, which
    no trial can show to be better.
    """
    if not float(reward.value) > 0 or not np.isfinite(reward.error):
        return None
    one = replace(reward, error=np.array(1.0))
    wanted = float(half_width(one, alpha, 1.0)) + float(ndtri(POWER))
    return max(1.0, (wanted * float(reward.error) / float(reward.value)) ** 2)


def _words(needed: float | None, sessions: int, users: int) -> str:
    if needed is None:
        return "the challenger is not ahead, so more sessions are not expected to promote it"
    people = math.ceil(needed * users)
    return (
        f"if the truth is as measured, {math.ceil(needed * sessions):,} sessions of {people:,} users as "
        f"active would promote it four times in five: {math.ceil((needed - 1) * sessions):,} more than now"
    )


def grounds(trial: Trial, counted: Sequence[TrialSession]) -> tuple[dict[str, Any], str]:
    """Return what every verdict tells, and the reason why the arms cannot be compared, "" when they can."""
    arm_of: dict[str, str] = {}
    both = sorted({each.user for each in counted if arm_of.setdefault(each.user, each.arm) != each.arm})
    arms = {name: sum(arm == name for arm in arm_of.values()) for name in (trial.champion, trial.challenger)}
    evidence = {
        "experiment": trial.experiment,
        "claim": trial.claim,
        "alpha": trial.alpha,
        "chain": trial.chain,
        "harm": trial.harm,
        "sessions": len(counted),
        "horizon": trial.horizon,
        "users": arms,
        "people": len(arm_of),
    }
    if (met := _met(trial, counted)) is not None:
        evidence |= {"users": met.users(trial.champion, trial.challenger), "people": met.both}
        problem, few = met.unsound(trial.share)
        return (evidence | {"void": problem}, f"void: {problem}") if problem else (evidence, few)
    if problem := _void(trial, arms, both):
        return evidence | {"void": problem}, f"void: {problem}"
    if lacking := [f"{name} has {n}" for name, n in arms.items() if n < MIN_USERS]:
        return evidence, f"too few users, {', '.join(lacking)}: a verdict needs {MIN_USERS} on each arm"
    return evidence, ""


def _met(trial: Trial, sessions: Sequence[TrialSession]) -> Met | None:
    """Return who met what, None in a trial whose people stay on one arm."""
    if WITHIN.search(trial.experiment) is None:
        return None
    units = [unit_of(trial.experiment, each.user, str(n), each.at) for n, each in enumerate(sessions)]
    challenger = [each.arm == trial.challenger for each in sessions]
    return Met(people=[each.user for each in sessions], challenger=challenger, units=units)


def _void(trial: Trial, arms: Mapping[str, int], both: Sequence[str]) -> str:
    """Return the reason why the arms cannot be compared, or "" when they can."""
    if both:
        return f"{len(both)} users met both arms, {both[0]!r} is one: a user must stay on one arm"
    challengers, users = arms[trial.challenger], sum(arms.values())
    if sample_ratio(challengers, users, trial.share) > VOID:
        return (
            f"{challengers} of {users} users are on {trial.challenger!r} where a share of {trial.share:g} "
            "was set: find out which users were lost before trying again"
        )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """The estimates, challenger minus champion, between bounds that hold at every look."""

    promoting: Interval
    """The change of the reward per session, each side at `Trial.level`."""
    harming: Interval
    """The same at the level of a roll-back."""
    tokens: Interval
    """The change of the tokens per session, each side at `Trial.level`."""
    rails: dict[str, Interval]
    """The change by guardrail, each side at the level of a roll-back."""
    within: dict[str, Interval]
    """The change by guardrail, each side at `Trial.harm`."""

    @classmethod
    def of(cls, trial: Trial, sessions: Sequence[TrialSession], before: Mapping[str, float]) -> "_Bounds":
        fraction = len(sessions) / trial.horizon
        reward = compare(trial, [(each, each.value) for each in sessions], before)
        tokens = compare(trial, [(each, each.tokens) for each in sessions], {})
        rails = rises(trial, sessions)
        each = trial.harm / 2 / max(1, len(rails))
        return cls(
            promoting=interval(reward, trial.level, fraction),
            harming=interval(reward, trial.harm / 2, fraction),
            tokens=interval(tokens, trial.level, fraction),
            rails={name: interval(rise, each, fraction) for name, rise in rails.items()},
            within={name: interval(rise, trial.harm, fraction) for name, rise in rails.items()},
        )

    def decide(self, trial: Trial) -> tuple[Decision, str]:
        limits = trial.guardrails
        reward = f"{self.promoting} reward a session"
        if violated := [name for name, rise in self.rails.items() if rise.low > limits[name]]:
            shown = ", ".join(f"{name} rose by {self.rails[name]}" for name in violated)
            return Decision.ROLL_BACK, f"guardrail: {shown}; {reward}"
        if self.harming.high < 0:
            return Decision.ROLL_BACK, f"worse: {self.harming} reward a session"
        doubtful = [name for name, rise in self.within.items() if rise.high >= limits[name]]
        better = self.promoting.low > 0
        cheaper = trial.claim is Claim.CHEAPER and self.promoting.low > -trial.margin and self.tokens.high < 0
        safe = trial.claim is Claim.SUITE and self.promoting.low > -trial.margin
        if (better or cheaper or safe) and doubtful:
            shown = ", ".join(f"{name} {self.within[name]}" for name in doubtful)
            return Decision.HOLD, f"not shown to stay within the guardrails: {shown}; {reward}"
        if better:
            return Decision.PROMOTE, f"better: {reward}"
        if safe:
            return Decision.PROMOTE, f"better on the suite and no worse by {trial.margin:g}: {reward}"
        if cheaper:
            saved = f"{self.tokens} tokens a session"
            return Decision.PROMOTE_CHEAPER, f"no worse by {trial.margin:g} and cheaper: {reward}, {saved}"
        return Decision.INCONCLUSIVE, f"not shown to be {trial.claim}: {reward}"


def rises(trial: Trial, sessions: Sequence[TrialSession]) -> dict[str, Estimate]:
    """Return the rise of each guardrail of the trial, challenger minus champion."""
    return {
        name: compare(trial, [(each, each.harms[name]) for each in sessions if name in each.harms], {})
        for name in trial.guardrails
    }


def compare(
    trial: Trial, values: Sequence[tuple[TrialSession, float]], before: Mapping[str, float]
) -> Estimate:
    """Return challenger minus champion, from one value of each session."""
    if (met := _met(trial, [session for session, _ in values])) is not None:
        return met.paired([value for _, value in values])
    arm_of = {session.user: session.arm for session, _ in values}
    users = {user: index for index, user in enumerate(arm_of)}
    member, worth = [users[session.user] for session, _ in values], np.array([value for _, value in values])
    return effect(
        np.bincount(member, minlength=len(users)).astype(np.float64),
        np.asarray(np.bincount(member, weights=worth, minlength=len(users)), dtype=np.float64),
        np.array([arm == trial.challenger for arm in arm_of.values()], dtype=bool),
        np.array([before.get(user, np.nan) for user in users], dtype=float),
    )


def effect(counts: Floats, sums: Floats, challenger: Flags, before: Floats) -> Estimate:
    """Return challenger minus champion, for the mean value of a session.

    `counts` and `sums`, (..., users), are the number of each user's sessions so far and the sum of their
    values. `challenger` is True for users assigned to the challenger. `before` is each user's mean from
    before the trial, NaN for newcomers. The last two have the shape (users,) or one that broadcasts to the
    first two.
    """
    present = counts > 0
    means = sums / np.where(present, counts, 1.0)
    weights = np.where(present, counts / (1 + (counts - 1) * ALIKE), 0.0)
    means = _without(before, means, weights, challenger)
    theirs, ours = np.where(challenger, weights, 0.0), np.where(challenger, 0.0, weights)
    arms = clustered(theirs * means, theirs), clustered(ours * means, ours)
    return minus(*_at_least_pooled(arms, (theirs, ours), means))


def _at_least_pooled(
    arms: tuple[Estimate, Estimate], weights: tuple[Floats, Floats], means: Floats
) -> tuple[Estimate, Estimate]:
    """Return both arms with errors no smaller than the variation of all users together implies.

    A small arm in which a rare thing happened to nobody would have an error of 0, and prove anything.
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
    """Return `means` less what `before` explains of them; each user's slope is estimated from all others.

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
