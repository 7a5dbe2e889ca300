"""Trials of challengers that harm somebody while the mean user gains, or that drive people away.

They are decided by `judge` itself, with the guardrails that ship, at looks after equal parts of the sessions.
A user keeps a session's edit with a probability of their own, Beta-distributed with mean `KEEPS`, so that two
sessions of one user are correlated by `ALIKE`.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.releases import ALIKE, KEEPS, Rng, Row, rate
from ostinato.deploy.abtest import judge
from ostinato.deploy.budget import next_alpha
from ostinato.deploy.statistics import Floats
from ostinato.deploy.terms import Trial, TrialSession
from ostinato.loop.config import LiveConfig
from ostinato.loop.trial import CHALLENGER, CHAMPION, attendance, planned
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


def decided(trial: Trial, sessions: list[TrialSession], before: dict[str, float], until: Floats) -> Decision:
    """Return the first verdict that is not HOLD at looks at these times, or the last look's.

    A session counts an hour after its beginning.
    """
    trial = replace(trial, horizon=len(sessions))
    decision = Decision.HOLD
    for now in until:
        begun: dict[tuple[str, str], list[float]] = {}
        for one in sessions:
            if one.at <= now:
                begun.setdefault((one.arm, one.user), []).append(one.at)
        settled = [one for one in sessions if one.at <= now - 3600]
        came = attendance(begun, now)
        decision = judge(1, trial, settled, before, attendance=came).decision
        if decision is not Decision.HOLD:
            break
    return decision


def habits(rng: Rng, users: int) -> tuple[Floats, dict[str, float]]:
    """Return each user's chance to keep an edit, and the mean reward of six sessions before the trial."""
    strength = 1 / ALIKE - 1
    keeps = rng.beta(KEEPS * strength, (1 - KEEPS) * strength, users)
    return keeps, {str(user): 1.5 * k / 6 - 0.5 for user, k in enumerate(rng.binomial(6, keeps))}


def steady(
    rng: Rng, users: int, gain: Callable[[NDArray[np.int_]], Floats], complaints: tuple[float, float]
) -> Decision:
    """Return the end of a trial of users with lognormal activity; `gain` is of each by number of sessions.

    The mean number of sessions is 5, and the busiest tenth has most of them. `complaints` are the shares of
    (champion, challenger).
    """
    each = np.maximum(1, np.round(rng.lognormal(0.35, 1.55, users))).astype(int)
    keeps, before = habits(rng, users)
    challenger = rng.random(users) < 0.5
    user = np.repeat(np.arange(users), each)
    chance = np.clip(keeps + gain(each) * challenger, 0, 1)[user]
    kept = (rng.random(len(user)) < chance).astype(float)
    rates = np.where(challenger, complaints[1], complaints[0])[user]
    complained = (rng.random(len(user)) < rates).astype(float)
    at = rng.uniform(0, 7 * DAY_S, len(user))
    sessions = sessions_of(user, at, challenger, kept, complained)
    return decided(TERMS, sessions, before, np.linspace(0, 7 * DAY_S + 3600, LOOKS + 1)[1:])


def leaving(rng: Rng, users: int, leave: tuple[float, float], days: int = 10) -> Decision:
    """Return the end of a trial in which users stay away after a failure.

    `leave` are the chances of (champion, challenger). Sessions a day are Pareto(1.5)-distributed; all users
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
    return decided(TERMS, sessions, before, DAY_S * np.linspace(0, days, LOOKS + 1)[1:] + 3600)


def harms(runs: int, seed: int) -> Row:
    """Return the rates by which each kind of harm is promoted or rolled back, and those without any."""

    def all_gain(each: NDArray[np.int_]) -> Floats:
        return np.full(len(each), 0.04)

    def busy_lose(each: NDArray[np.int_]) -> Floats:
        """Six points less for the busiest tenth, who have 58 % of the sessions; four more for the others."""
        rank = np.argsort(np.argsort(each, kind="stable"))
        return np.where(rank >= 0.9 * len(each), -0.06, 0.04)

    def ended(wanted: Decision, number: int, n: int, one: Callable[[Rng], Decision]) -> Row:
        rng, started = np.random.default_rng([seed, 20 + number]), time.process_time()
        found = [one(rng) for _ in range(n)]
        ends = {end.value: found.count(end) for end in Decision if end in found}
        spent = round(time.process_time() - started, 1)
        return rate(found.count(wanted), n, ends=ends, cpu_s=spent)

    promote, back, same, few = Decision.PROMOTE, Decision.ROLL_BACK, (0.06, 0.06), min(runs, 100)
    return {
        "heavy_tenth": ended(promote, 0, few, lambda rng: steady(rng, 2000, busy_lose, same)),
        "all_gain": ended(promote, 1, few, lambda rng: steady(rng, 2000, all_gain, same)),
        "complaints_promoted": ended(
            promote, 2, few, lambda rng: steady(rng, 2000, lambda each: 0.75 * all_gain(each), (0.06, 0.13))
        ),
        "leavers_rolled_back": ended(back, 3, few, lambda rng: leaving(rng, 500, (0.05, 0.3))),
        "leavers_equal": ended(back, 4, 4 * few, lambda rng: leaving(rng, 100, (0.05, 0.05))),
    }
