"""Trials of challengers that harm somebody while the mean user gains, or that drive people away.

Those with guardrails are decided by `judge` itself, with the limits that ship, and all at looks after equal
parts of the trial.
A user keeps a session's edit with a probability of their own, Beta-distributed with mean `KEEPS`, so that two
sessions of one user are correlated by `ALIKE`.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.releases import ALIKE, KEEPS, Rng, Row, rate
from ostinato.deploy.abtest import EVEN, judge
from ostinato.deploy.budget import next_alpha
from ostinato.deploy.effects import busy_users, effect
from ostinato.deploy.statistics import Floats, half_width
from ostinato.deploy.terms import Trial, TrialSession
from ostinato.loop.live_config import CHALLENGER, CHAMPION, LiveConfig
from ostinato.loop.trial import attendance, planned
from ostinato.types import Decision

DAY_S = 86_400.0
LOOKS = 10
TERMS = planned(LiveConfig(), "simulated", next_alpha([])).trial


def sessions_of(
    user: NDArray[np.int_], at: Floats, challenger: NDArray[np.bool_], kept: Floats, complaints: Floats
) -> list[TrialSession]:
    """Return sessions in the order of time; all arrays but `challenger`, (users,), have an entry for each."""
    return [
        TrialSession(
            arm=CHALLENGER if challenger[user[i]] else CHAMPION,
            user=str(user[i]),
            at=float(at[i]),
            value=1.5 * float(kept[i]) - 0.5 - 0.3 * float(complaints[i]),
            tokens=100.0,
            harms={"complaints": float(complaints[i]), "abandoned": 0.0, "broken": 0.0, "latency": 0.0},
            gains={"kept": float(kept[i]), "dissatisfied": float(complaints[i])},
        )
        for i in np.argsort(at)
    ]


def decided(
    trial: Trial,
    sessions: list[TrialSession],
    before: dict[str, float],
    until: Floats,
    earlier: dict[str, int] | None = None,
) -> Decision:
    """Return the first verdict that is not HOLD at looks at these times, or the last look's.

    `before` and `earlier` are the mean reward and the number of sessions before the trial, by user. A session
    counts an hour after its beginning.
    """
    trial = replace(trial, horizon=len(sessions))
    decision = Decision.HOLD
    for now in until:
        begun: dict[tuple[str, str], list[float]] = {}
        for one in sessions:
            if one.at <= now:
                begun.setdefault((one.arm, one.user), []).append(one.at)
        settled = [one for one in sessions if one.at <= now - 3600]
        came = attendance(begun, earlier or {}, now)
        decision = judge(1, trial, settled, before, attendance=came).decision
        if decision is not Decision.HOLD:
            break
    return decision


def habits(rng: Rng, users: int) -> tuple[Floats, dict[str, float]]:
    """Return each user's chance to keep an edit, and the mean reward of six sessions before the trial."""
    strength = 1 / ALIKE - 1
    keeps = rng.beta(KEEPS * strength, (1 - KEEPS) * strength, users)
    return keeps, {str(user): 1.5 * k / 6 - 0.5 for user, k in enumerate(rng.binomial(6, keeps))}


def activity(rng: Rng, users: int) -> NDArray[np.int_]:
    """Return each user's sessions: lognormal, 5 on average, of which the busiest tenth has 58 %."""
    return np.maximum(1, np.round(rng.lognormal(0.35, 1.55, users))).astype(int)


def promoted(rng: Rng, users: int, busiest: float, others: float, looks: int = 60) -> bool:
    """Return whether a trial ever promotes a challenger whose gain the busiest tenth does not share.

    `busiest` and `others` are the changes of the share of edits that are kept.
    """
    each, (keeps, worth) = activity(rng, users), habits(rng, users)
    challenger, before = rng.random(users) < 0.5, np.array([*worth.values()])
    rank = np.argsort(np.argsort(each, kind="stable"))
    chance = np.clip(keeps + np.where(rank >= 0.9 * users, busiest, others) * challenger, 0, 1)
    user = rng.permutation(np.repeat(np.arange(users), each))
    value = np.where(rng.random(len(user)) < chance[user], 1.0, -0.5)
    at = np.linspace(0, len(user), looks + 1).astype(int)
    spans = [slice(*span) for span in itertools.pairwise(at)]
    counts = np.cumsum([np.bincount(user[s], minlength=users) for s in spans], axis=0, dtype=float)
    sums = np.cumsum([np.bincount(user[s], value[s], users) for s in spans], axis=0)
    seen = counts, sums, challenger, before
    difference = effect(*seen)
    shown = difference.value - half_width(difference, TERMS.alpha, at[1:] / len(user)) > 0
    by_session, heaviest = busy_users(*seen)
    for busy in (by_session, heaviest):
        shown &= busy.value - half_width(busy, EVEN, at[1:] / len(user)) >= 0
    return bool(shown.any())


def complaining(rng: Rng, users: int, gain: float, complaints: tuple[float, float]) -> Decision:
    """Return the end of a trial in which (champion, challenger) are complained of in these shares."""
    keeps, before = habits(rng, users)
    challenger = rng.random(users) < 0.5
    user = np.repeat(np.arange(users), activity(rng, users))
    kept = (rng.random(len(user)) < np.clip(keeps + gain * challenger, 0, 1)[user]).astype(float)
    rates = np.where(challenger, complaints[1], complaints[0])[user]
    complained = (rng.random(len(user)) < rates).astype(float)
    at = rng.uniform(0, 7 * DAY_S, len(user))
    sessions = sessions_of(user, at, challenger, kept, complained)
    return decided(TERMS, sessions, before, np.linspace(0, 7 * DAY_S + 3600, LOOKS + 1)[1:])


def leaving(rng: Rng, users: int, leave: tuple[float, float], days: int = 10) -> Decision:
    """Return the end of a trial in which users stay away after a failure.

    Everybody has worked with the champion for as long before. `leave` are the chances of (champion,
    challenger). Sessions a day are Pareto(1.5)-distributed; all users
    arrive within the first half of the trial.
    """
    daily = np.minimum(0.5 * (rng.pareto(1.5, users) + 1), 40)
    keeps, before = habits(rng, users)
    challenger = rng.random(users) < 0.5
    user, at, kept = [], [], []
    for one in range(users):
        now = rng.uniform(0, days / 2)
        while now < days:
            good = rng.random() < keeps[one]
            user.append(one), at.append(now * DAY_S), kept.append(float(good))
            if not good and rng.random() < leave[int(challenger[one])]:
                break
            now += rng.exponential(1 / daily[one])
    none = np.zeros(len(user))
    sessions = sessions_of(np.array(user), np.array(at), challenger, np.array(kept), none)
    earlier = {str(one): int(n) for one, n in enumerate(rng.poisson(days * daily))}
    return decided(TERMS, sessions, before, DAY_S * np.linspace(0, days, LOOKS + 1)[1:] + 3600, earlier)


def harms(runs: int, seed: int) -> Row:
    """Return the rates by which each kind of harm is promoted or rolled back, and those without any.

    The busiest tenth loses six points where all others gain four: in all, sessions lose 1.9.
    """

    def often(number: int, n: int, one: Callable[[Rng], bool]) -> Row:
        rng, started = np.random.default_rng([seed, 20 + number]), time.process_time()
        happened = sum(one(rng) for _ in range(n))
        return rate(happened, n, cpu_s=round(time.process_time() - started, 1))

    most, many, few = min(runs, 2000), min(runs, 400), min(runs, 100)
    promotes, back, equal = Decision.PROMOTE, Decision.ROLL_BACK, (0.05, 0.05)
    return {
        "heavy_tenth": often(0, many, lambda rng: promoted(rng, 2000, -0.06, 0.04)),
        "heavy_tenth_500": often(1, many, lambda rng: promoted(rng, 500, -0.12, 0.08)),
        "heavy_tenth_250": often(6, most, lambda rng: promoted(rng, 250, -0.17, 0.113)),
        "heavy_tenth_100": often(7, most, lambda rng: promoted(rng, 100, -0.268, 0.179)),
        "all_gain": often(2, many, lambda rng: promoted(rng, 2000, 0.04, 0.04)),
        "all_gain_250": often(8, most, lambda rng: promoted(rng, 250, 0.113, 0.113)),
        "complaints_promoted": often(
            3, few, lambda rng: complaining(rng, 2000, 0.03, (0.06, 0.13)) is promotes
        ),
        "leavers_rolled_back": often(4, few, lambda rng: leaving(rng, 500, (0.05, 0.3)) is back),
        "leavers_equal": often(5, many, lambda rng: leaving(rng, 100, equal) is back),
    }
