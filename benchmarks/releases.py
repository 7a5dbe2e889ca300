"""Releases at the size of a product, decided by the functions of `ostinato.deploy` on arrays of many at once.

A user keeps a session's edit with a probability of their own, Beta-distributed with mean `KEEPS`, so that two
sessions of one user are correlated by `ALIKE`. Everybody has `BEFORE` sessions before the release, which the
comparison adjusts for. One round is one session of each user, and there is a look after each round.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ostinato.deploy.budget import next_alpha
from ostinato.deploy.effects import effect
from ostinato.deploy.plan import Prospect, plan
from ostinato.deploy.release import BEFORE_SPLIT, REWARD_PART
from ostinato.deploy.statistics import Estimate, Floats, half_width, wilson
from ostinato.deploy.terms import HARM

Row = dict[str, Any]
Rng = np.random.Generator
KEEPS, DISSATISFIED, ALIKE, BEFORE = 0.6, 0.2, 0.2, 6
AT_ONCE = 3_000_000
"""Numbers of one array that are computed at once."""


def rate(happened: int, n: int, **more: Any) -> Row:
    score = wilson(happened, n)
    return {"rate": happened / n, "low": score.low, "high": score.high, "n": n, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The users of `n` simulated releases: their habits, and the place at which each is enrolled."""

    habit: Floats
    before: Floats
    place: Floats

    @classmethod
    def of(cls, rng: Rng, n: int, users: int, rate: float, alike: float, *, before: int = BEFORE) -> "Crowd":
        strength = 1 / alike - 1
        habit = rng.beta(rate * strength, (1 - rate) * strength, (n, users))
        earlier = rng.binomial(before, habit) / before
        return cls(habit=habit, before=earlier, place=rng.random((n, users)))

    def step(self, rng: Rng, share: float, gain: float, rounds: int) -> tuple[Estimate, Floats]:
        """Return challenger minus champion after each round, (n, rounds), and the part of the step over."""
        challenger = self.place < share
        chance = np.clip(self.habit + gain * challenger, 0.0, 1.0)
        good = rng.random((self.habit.shape[0], rounds, self.habit.shape[1])) < chance[:, None, :]
        sums = np.cumsum(good, axis=1, dtype=np.float64)
        counts = np.broadcast_to(np.arange(1.0, rounds + 1)[:, None], sums.shape)
        difference = effect(counts, sums, challenger[:, None, :], self.before[:, None, :])
        return difference, np.arange(1, rounds + 1) / rounds


def first(happened: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Return the look at which it first happened, or the number of looks if it never did."""
    return np.where(happened.any(axis=1), happened.argmax(axis=1), happened.shape[1])


def harmed(difference: Estimate, fraction: Floats, level: float) -> NDArray[np.bool_]:
    """Return the looks at which a release is rolled back for its reward."""
    return np.asarray(difference.value + half_width(difference, level, fraction) < 0)


def parts(n: int, users: int, rounds: int) -> list[int]:
    size = max(1, AT_ONCE // (users * rounds))
    return [min(size, n - start) for start in range(0, n, size)]


def canary(runs: int, gain: float, seed: int, *, alike: float = ALIKE, share: float = 0.1) -> Row:
    """Return how often a canary of 1,000 challengers of 6 sessions is rolled back, and after how many."""
    rng, started, users, rounds = np.random.default_rng([seed, 11]), time.process_time(), int(1000 / share), 6
    looks = []
    for n in parts(runs, users, rounds):
        difference, fraction = Crowd.of(rng, n, users, KEEPS, alike).step(rng, share, gain, rounds)
        looks.append(first(harmed(difference, fraction, BEFORE_SPLIT * REWARD_PART)))
    at = np.concatenate(looks)
    caught = at[at < rounds] + 1
    return rate(
        len(caught),
        runs,
        challenger_sessions=6000,
        mean_sessions_when_rolled_back=float(1000 * caught.mean()) if len(caught) else None,
        correlation=alike,
        share=share,
        cpu_s=round(time.process_time() - started, 1),
    )


EARLY = BEFORE_SPLIT * REWARD_PART
STEPS = ((0.1, 2, EARLY / 2), (0.25, 2, EARLY / 2), (0.5, 5, HARM / 2))
"""Canary, ramp and split of a simulated path: share, rounds, chance of a false roll-back for the reward."""


def path(runs: int, gain: float, seed: int, *, users: int = 2000) -> Row:
    """Return the outcomes of the whole way from canary to verdict; the first level of a store's budget."""
    rng, started, alpha = np.random.default_rng([seed, 12]), time.process_time(), next_alpha([])
    counts = {"rolled_back_before_split": 0, "rolled_back": 0, "promoted": 0}
    for n in parts(runs, users, 9):
        crowd, under_way = Crowd.of(rng, n, users, KEEPS, ALIKE), np.ones(n, dtype=bool)
        for share, rounds, level in STEPS:
            difference, fraction = crowd.step(rng, share, gain, rounds)
            worse = first(harmed(difference, fraction, level))
            better = np.full(n, rounds)
            if share == STEPS[-1][0]:
                better = first(difference.value - half_width(difference, alpha, fraction) > 0)
            back, up = under_way & (worse < rounds) & (worse <= better), under_way & (better < worse)
            counts["rolled_back_before_split" if share < STEPS[-1][0] else "rolled_back"] += int(back.sum())
            counts["promoted"] += int(up.sum())
            under_way &= ~(back | up)
    outcomes = {name: rate(count, runs) for name, count in counts.items()}
    spent = round(time.process_time() - started, 1)
    return outcomes | {"alpha": alpha, "nominal_rolled_back": EARLY + HARM / 2, "cpu_s": spent}


def lifted(runs: int, baseline: float, lift: float, users: int, seed: int) -> Row:
    """Return the power of a split of planned size at its true lift, and its mean length."""
    rng, started, alpha = np.random.default_rng([seed, 13]), time.process_time(), next_alpha([])
    planned = plan(Prospect(baseline=baseline, lift=lift, users=users, sessions_a_day=3.0, history=BEFORE))
    assert planned.sessions_each is not None, "no number of sessions shows it: give more users"
    rounds, looks = planned.sessions_each, []
    for n in parts(runs, users, rounds):
        difference, fraction = Crowd.of(rng, n, users, baseline, ALIKE).step(rng, 0.5, lift, rounds)
        looks.append(first(difference.value - half_width(difference, alpha, fraction) > 0))
    at = np.concatenate(looks)
    length = np.minimum(at + 1, rounds) / rounds
    return rate(
        int((at < rounds).sum()),
        runs,
        users=users,
        sessions=planned.sessions,
        mean_part_of_the_sessions=float(length.mean()),
        cpu_s=round(time.process_time() - started, 1),
    )


def obrien_fleming(seed: int, *, looks: int = 5, runs: int = 100_000, power: float = 0.8) -> Row:
    """Return the length of our trials against O'Brien-Fleming's five looks and against one look at the end.

    All three have the same level and the same power at one effect. Trials are Brownian motions, of which a
    look sees the mean so far; O'Brien-Fleming's constant and length are found by simulation.
    """
    rng, alpha, steps = np.random.default_rng([seed, 14]), next_alpha([]), 50
    noise = np.cumsum(rng.standard_normal((runs, steps)), axis=1) / np.sqrt(steps)  # W(t)
    time_of = np.arange(1, steps + 1) / steps
    at = np.arange(steps // looks, steps + 1, steps // looks) - 1
    constant = float(np.quantile(noise[:, at].max(axis=1), 1 - alpha))
    fixed = float(-ndtri(alpha) + ndtri(power)) ** 2  # drift squared: the information of one look at the end

    def stops(drift: float, bound: Floats, seen: Sequence[int] | NDArray[np.int_]) -> tuple[float, float]:
        crossed = (noise + drift * time_of)[:, seen] > bound
        when = first(crossed)
        length = np.where(when < len(seen), time_of[np.asarray(seen)][np.minimum(when, len(seen) - 1)], 1.0)
        return float(crossed.any(axis=1).mean()), float(length.mean())

    def ours(drift: float) -> tuple[float, float]:
        one = Estimate(
            value=np.zeros(steps), error=1 / np.sqrt(time_of), freedom=np.full(steps, 1e6)
        )  # the mean so far has variance 1 / t
        return stops(drift, half_width(one, alpha, time_of) * time_of, np.arange(steps))

    def theirs(drift: float) -> tuple[float, float]:
        return stops(drift, np.full(len(at), constant), at)

    found = {}
    for name, design in (("ours", ours), ("obrien_fleming", theirs)):
        low, high = np.sqrt(fixed), 2 * np.sqrt(fixed)
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if design(middle)[0] < power else (low, middle)
        found[name] = (high**2, design(high)[1] * high**2)
    return {
        "mean_n_against_obrien_fleming": found["ours"][1] / found["obrien_fleming"][1],
        "max_n_against_one_look": found["ours"][0] / fixed,
        "obrien_fleming_max_n_against_one_look": found["obrien_fleming"][0] / fixed,
        "looks": looks,
        "n": runs,
    }


def releases(runs: int, seed: int) -> Row:
    """Return every figure of this file; `runs` of the cheap kinds, fewer of those with many users."""
    return {
        "canary_minus3": canary(runs, -0.03, seed),
        "canary_minus3_alike_less": canary(max(1, runs // 4), -0.03, seed, alike=0.05),
        "canary_equal": canary(runs, 0.0, seed),
        "path_equal": path(2 * runs, 0.0, seed),
        "path_minus2percent": path(2 * runs, -0.02 * KEEPS, seed),
        "kept_plus_2.28_percent": lifted(max(1, runs // 10), KEEPS, 0.0228 * KEEPS, 20_000, seed),
        "dissatisfied_minus_3.13_percent": lifted(
            max(1, runs // 10), 1 - DISSATISFIED, 0.0313 * DISSATISFIED, 60_000, seed
        ),
        "length": obrien_fleming(seed),
    }
