"""The A/B trial on live traffic: champion against challenger, judged any number of times until its end.

The claim is settled before the first session, in a `Trial`. What is tested is the *mean over users* of their
reward per session (`effects.py`):

- PROMOTE refutes "that mean is not higher with the challenger"; wrongly with chance `Trial.alpha`, which
  comes from the budget.
- PROMOTE under the claim SUITE refutes "it is lower by `margin` or more", after a gate that refuted "the
  suite is solved no more" at the same chance; wrongly with chance `Trial.alpha`.
- PROMOTE_CHEAPER refutes "it is lower by `margin` or more" and "the mean over users of what the claim counts
  per session, as the tokens, is not lower"; wrongly with chance `Trial.alpha`.
- ROLL_BACK refutes "that mean is not lower and no guardrail is beyond its limit"; wrongly with chance
  `Trial.harm`.
- INCONCLUSIVE is the verdict of a trial that reached its horizon and refuted nothing.

A promotion is withheld while in the trial the mean over sessions stands lower, or that over the heaviest
tenth of users is not shown to be no lower, with chance `EVEN` of error, or a guardrail stands beyond its
limit. That makes a wrong one rarer still, so it needs no share of alpha; a gain of many that busy users pay
for is not promoted.

A guardrail's limit is relative to its baseline: the challenger's mean may reach `scale` times the champion's
plus the absolute limit. "sessions" and "returning" are about people: they count everybody from assignment on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from ostinato.deploy.crossover import VOID, Met
from ostinato.deploy.effects import MIN_USERS, arms, busy_users, effect
from ostinato.deploy.statistics import (
    Estimate,
    Flags,
    Floats,
    Interval,
    half_width,
    interval,
    relative,
    sample_ratio,
)
from ostinato.deploy.terms import CHEAPER, CLAIMS, SUITE, Attendance, Trial, TrialSession
from ostinato.types import Decision, Verdict
from ostinato.types.release import WITHIN, unit_of

POWER = 0.8
"""The chance with which a trial of the size that an inconclusive one asks for would promote."""
REPORTED = 0.05
"""The chance that a reported gain leaves out the truth at any look."""
EVEN = 0.5
"""The chance that heavy users, or the mean session, seem to gain at any look though neither gains nor loses.
At some of many looks their estimate alone would nearly always do so."""
PEOPLE = ("sessions", "returning")
"""The guardrails of people, which are read from their attendance."""


def judge(
    version: int,
    trial: Trial,
    sessions: Sequence[TrialSession],
    before: Mapping[str, float] | None = None,
    *,
    attendance: Sequence[Attendance] = (),
    closed: bool = False,
) -> Verdict:
    """Return a verdict on the challenger's `version`, from the first `horizon` sessions of the trial.

    A trial is over at its horizon, or when it is `closed` because no more sessions come.

    `before` maps a user to the mean reward of their sessions before the trial; what it explains is taken out
    of the comparison. `attendance` has everybody who came. The first verdict that is not HOLD is the trial's.
    A trial whose users are not on the arms they were assigned to is void: the verdict is a HOLD that says so.
    The last line of the reason has the relative changes of what is reported beside.
    """
    counted = sorted(sessions, key=lambda session: session.at)[: trial.horizon]
    evidence, problem = grounds(trial, counted)
    if problem:
        return Verdict(version=version, decision=Decision.HOLD, reason=problem, evidence=evidence)
    bounds = _Bounds.of(trial, counted, before or {}, attendance)
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
    if bounds.gains:
        reason += "\n" + ", ".join(f"{name} {change.percent()}" for name, change in bounds.gains.items())
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
        "source": trial.source,
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
    """The change of the reward per session, mean over users, each side at `Trial.level`."""
    harming: Interval
    """The same at the level of a roll-back."""
    by_session: Interval
    """The change of the mean over sessions, each side at `EVEN`."""
    heaviest: Interval
    """The change of the mean over the heaviest tenth of users, each side at `EVEN`."""
    cost: Interval | None
    """The change of what the claim counts per session, mean over users, each side at `Trial.level`."""
    rails: dict[str, Interval]
    """The change by guardrail beyond its scale, each side at the level of a roll-back."""
    within: dict[str, Interval]
    """The same, each side at `Trial.harm`."""
    gains: dict[str, Interval]
    """The relative change of what is reported beside, 0.02 for two per cent more."""

    @classmethod
    def of(
        cls,
        trial: Trial,
        sessions: Sequence[TrialSession],
        before: Mapping[str, float],
        attendance: Sequence[Attendance],
    ) -> "_Bounds":
        fraction = len(sessions) / trial.horizon
        reward, all_sessions, of_busy = _rewards(trial, sessions, before)
        cost = _cost(trial, sessions)
        seen = {name: (rise, fraction) for name, rise in rises(trial, sessions).items()}
        seen |= {n: (rise, part * fraction) for n, (rise, part) in absences(trial, attendance).items()}
        each = trial.harm / 2 / max(1, len(trial.guardrails))
        return cls(
            promoting=interval(reward, trial.level, fraction),
            harming=interval(reward, trial.harm / 2, fraction),
            by_session=interval(all_sessions, EVEN, fraction),
            heaviest=interval(of_busy, EVEN, fraction),
            cost=None if cost is None else interval(cost, trial.level, fraction),
            rails={name: interval(rise, each, part) for name, (rise, part) in seen.items()},
            within={name: interval(rise, trial.harm, part) for name, (rise, part) in seen.items()},
            gains=_gains(trial, sessions, fraction),
        )

    def decide(self, trial: Trial) -> tuple[Decision, str]:
        limits = trial.guardrails
        reward = f"{self.promoting} reward a session, mean over users"
        if violated := [name for name, rise in self.rails.items() if rise.low > limits[name]]:
            shown = ", ".join(rise_words(trial, name, self.rails[name]) for name in violated)
            return Decision.ROLL_BACK, f"guardrail: {shown}; {reward}"
        if self.harming.high < 0:
            return Decision.ROLL_BACK, f"worse: {reward}"
        better = self.promoting.low > 0
        safe = trial.claim == SUITE and self.promoting.low > -trial.margin
        cheaper = self.cost is not None and self.promoting.low > -trial.margin and self.cost.high < 0
        if better or cheaper or safe:
            least = 0.0 if better else -trial.margin
            doubts = []
            if self.by_session.low < least:
                doubts.append(f"mean over sessions {self.by_session}")
            if self.heaviest.low < least:
                doubts.append(f"heaviest tenth of users {self.heaviest}")
            for name, rise in self.within.items():
                if rise.estimate > limits[name] or not math.isfinite(rise.high):  # or it has no estimate
                    doubts.append(rise_words(trial, name, rise))
            if doubts:
                return Decision.HOLD, f"withheld: {reward}, but {', '.join(doubts)}"
        if better:
            return Decision.PROMOTE, f"better: {reward}"
        if safe:
            return Decision.PROMOTE, f"better on the suite and no worse by {trial.margin:g}: {reward}"
        if cheaper:
            saved = f"{self.cost} {'tokens' if trial.claim == CHEAPER else 'in what it counts'} a session"
            return (
                Decision.PROMOTE_CHEAPER,
                f"no worse by {trial.margin:g} and {trial.claim}: {reward}, {saved}",
            )
        return Decision.INCONCLUSIVE, f"not shown to be {trial.claim}: {reward}"


def rise_words(trial: Trial, name: str, rise: Interval) -> str:
    """Return a guardrail's rise in words: what rose, by how much, and what was too much."""
    scale = trial.scales.get(name, 1.0)
    above = "" if scale == 1 else f" above {scale:g} times the champion's"
    return f"{name} rose by {rise}{above}, where {trial.guardrails[name]:+.3f} is the limit"


def _cost(trial: Trial, sessions: Sequence[TrialSession]) -> Estimate | None:
    """Return the change of what the claim counts; None where it counts nothing."""
    if (cost := CLAIMS[trial.claim]) is None:
        return None
    return compare(trial, [(each, value) for each in sessions if (value := cost(each)) is not None], {})


def rises(trial: Trial, sessions: Sequence[TrialSession]) -> dict[str, Estimate]:
    """Return the rise of each guardrail that sessions tell of, beyond its scale."""
    found = {}
    for name in [name for name in trial.guardrails if name not in PEOPLE]:
        told = [(each, each.harms[name]) for each in sessions if name in each.harms]
        found[name] = compare(trial, told, {}, scale=trial.scales.get(name, 1.0))
    return found


def absences(trial: Trial, attendance: Sequence[Attendance]) -> dict[str, tuple[Estimate, float]]:
    """Return the rise of each guardrail of people, and the part of those who came that it is read from.

    "sessions" is the fall of the mean logarithm of a user's sessions, so that a few who work all day do not
    decide it; "returning" is the rise of the mean share of sessions after which a user was gone. What users'
    activity before the trial explains is taken out of both. Users who are too new to tell are left out of the
    second, so its bounds are as wide as in a trial that is less far.
    """
    found = {}
    for name in [name for name in PEOPLE if name in trial.guardrails]:
        read = [(each, -math.log(each.sessions) if name == "sessions" else each.gone) for each in attendance]
        known = [(each, value) for each, value in read if value is not None]
        challenger = np.array([each.arm == trial.challenger for each, _ in known], dtype=bool)
        if min(challenger.sum(), (~challenger).sum()) < MIN_USERS:
            continue
        values = np.array([value for _, value in known])
        usual = np.array([-math.log(each.earlier) if each.earlier else math.nan for each, _ in known])
        rise = effect(np.ones(len(known)), values, challenger, usual, scale=trial.scales.get(name, 1.0))
        found[name] = rise, len(known) / len(attendance)
    return found


def _gains(trial: Trial, sessions: Sequence[TrialSession], fraction: float) -> dict[str, Interval]:
    """Return the relative change of each gain's mean over users, where both arms have enough of them."""
    found = {}
    if _met(trial, sessions) is not None:  # the mean of an arm is not what is compared
        return {}
    for name in dict.fromkeys(name for each in sessions for name in each.gains):
        told = [(each, each.gains[name]) for each in sessions if name in each.gains]
        counts, sums, challenger, none = _by_user(trial, told, {})
        if min(challenger.sum(), (~challenger).sum()) < MIN_USERS:
            continue
        theirs, ours = arms(counts, sums, challenger, none)
        if theirs.value > 0 and ours.value > 0:
            found[name] = relative(theirs, ours, REPORTED / 2, fraction)
    return found


def compare(
    trial: Trial,
    values: Sequence[tuple[TrialSession, float]],
    before: Mapping[str, float],
    *,
    scale: float = 1.0,
) -> Estimate:
    """Return challenger minus `scale` times champion, from one value of each session, by user."""
    if (met := _met(trial, [session for session, _ in values])) is not None:
        return met.paired([value for _, value in values], scale=scale)
    return effect(*_by_user(trial, values, before), scale=scale)


def _rewards(
    trial: Trial, sessions: Sequence[TrialSession], before: Mapping[str, float]
) -> tuple[Estimate, Estimate, Estimate]:
    """Return the change of the mean over users, over sessions, and over the heaviest tenth of users.

    Two of twenty people show nothing by themselves, so where people meet both arms the third is the second.
    """
    if (met := _met(trial, sessions)) is not None:
        values = [each.value for each in sessions]
        by_session = met.paired(values, by_session=True)
        return met.paired(values), by_session, by_session
    users = _by_user(trial, [(each, each.value) for each in sessions], before)
    return effect(*users), *busy_users(*users)


def _by_user(
    trial: Trial, values: Sequence[tuple[TrialSession, float]], before: Mapping[str, float]
) -> tuple[Floats, Floats, Flags, Floats]:
    """Return the arguments of `effect`."""
    arm_of = {session.user: session.arm for session, _ in values}
    users = {user: index for index, user in enumerate(arm_of)}
    member, worth = [users[session.user] for session, _ in values], [value for _, value in values]
    return (
        np.bincount(member, minlength=len(users)).astype(np.float64),
        np.asarray(np.bincount(member, weights=worth, minlength=len(users)), dtype=np.float64),
        np.array([arm == trial.challenger for arm in arm_of.values()], dtype=bool),
        np.array([before.get(user, np.nan) for user in users], dtype=float),
    )
