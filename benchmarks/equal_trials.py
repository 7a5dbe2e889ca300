"""Simulated trials of two equal versions, with a look after every session: how often are they told apart?

`benchmarks.decisions` prints them.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.releases import Row, rate
from ostinato.deploy.effects import MIN_USERS, busy_users, effect
from ostinato.deploy.statistics import Floats, half_width
from ostinato.deploy.terms import HARM
from ostinato.rewards.live.definition import LIVE

Rng = np.random.Generator
ALPHA, SHARE = 0.05, 0.5
"""The level of a promotion, and the challenger's share of the users."""
PLANNED = 200
"""The sessions after which a test is over, unless its users have had all of theirs before."""
Outcomes = Callable[[Rng, NDArray[np.int_], NDArray[np.float64]], Floats]
"""A function from the user of each session and the habit of each user to the value of each session."""
KINDS: dict[str, Outcomes] = {
    "reward": lambda rng, user, habit: (
        np.where(rng.random(len(user)) < 1 / (1 + np.exp(-0.4 - habit[user])), 1.0, -0.5)
        - 0.3 * (rng.random(len(user)) < 0.1)
    ),
    "binary": lambda rng, user, habit: (
        rng.random(len(user)) < 1 / (1 + np.exp(1.5 - 1.5 * habit[user]))
    ).astype(float),
    "heavy": lambda rng, user, habit: 0.7 * habit[user] + rng.standard_t(2.5, len(user)),
    "alike": lambda rng, user, habit: 2.0 * habit[user] + rng.normal(0, 0.5, len(user)),
}

WEEK_H, WINDOW_H = 168.0, LIVE.train_after_s / 3600
"""The hours in which users arrive, and those after which a session counts."""
KEPT, REVERTED = LIVE.parts["kept"].weight, LIVE.parts["reverted"].weight
"""What a session is worth by what its user did with the edit; silence is worth nothing."""
SAYS_SO = 0.8
"""The share of sessions whose user shows what became of the edit at all."""
FIRST_H = WINDOW_H / 24
"""The mean time until a user of the champion shows it, exponential, in hours."""
LATER_H = (WINDOW_H / 24, WINDOW_H / 6, WINDOW_H / 2)
"""The same with the challenger; of the last 13 % fall beyond the window, and count as silence."""


class People:
    """The users of one test.

    `user` and `at` are the user and the hour of each session, in the order of time; `once` is 1 where a
    session (row) is of a user (column). `habit` is of each user, and `before` is what it was worth before,
    nan where unknown.
    """

    def __init__(self, rng: Rng) -> None:
        users = int(rng.integers(40, 81))
        each = np.minimum(np.ceil(rng.pareto(1.5, users) + 1), 2000).astype(int)
        member = np.repeat(np.arange(users), each)
        at = rng.uniform(0, 1, users)[member] + rng.exponential(0.3, len(member))
        order = np.argsort(at)[:PLANNED]
        self.user, self.at = member[order], WEEK_H * at[order]
        self.once = np.eye(users)[self.user]
        self.habit = rng.normal(0, 1, users)
        self.before = np.where(rng.random(users) < 0.7, self.habit + rng.normal(0, 1, users), np.nan)

    def decided(self, challenger: NDArray[np.bool_], sums: Floats) -> tuple[bool, bool]:
        """Return whether a look ever promoted or rolled back.

        `challenger` says who meets it. `sums` is (looks, users): what each user's sessions were worth at a
        look; look k is taken when session k counts.
        """
        counts = np.cumsum(self.once, axis=0)
        difference = effect(counts, sums, challenger, self.before)
        met = counts > 0
        enough = np.minimum((met & challenger).sum(axis=1), (met & ~challenger).sum(axis=1)) >= MIN_USERS
        fraction = np.arange(1, len(counts) + 1) / len(counts)
        better = difference.value - half_width(difference, ALPHA, fraction) > 0
        for each in busy_users(counts, sums, challenger, self.before):
            better &= each.value >= 0
        worse = difference.value + half_width(difference, HARM / 2, fraction) < 0
        return bool((better & enough).any()), bool((worse & enough).any())


def aa(rng: Rng, outcomes: Outcomes) -> tuple[bool, bool]:
    """Return whether a test of two equal versions ever promoted or ever rolled back."""
    people = People(rng)
    values, challenger = outcomes(rng, people.user, people.habit), rng.random(len(people.habit)) < SHARE
    return people.decided(challenger, np.cumsum(people.once * values[:, None], axis=0))


def aa_tests(runs: int, seed: int) -> tuple[Row, Row]:
    """Return the rates of false promotion and roll-back by kind of outcome."""
    promoted, rolled_back = {}, {}
    for kind, outcomes in KINDS.items():
        rng, started = np.random.default_rng([seed, len(promoted)]), time.process_time()
        decided = np.array([aa(rng, outcomes) for _ in range(runs)])
        spent = {"cpu_s": round(time.process_time() - started, 1)}
        promoted[kind] = rate(int(decided[:, 0].sum()), runs, nominal=ALPHA, **spent)
        rolled_back[kind] = rate(int(decided[:, 1].sum()), runs, nominal=HARM, **spent)
    return promoted, rolled_back


def slow(rng: Rng, later_h: float) -> dict[str, tuple[bool, bool]]:
    """Return what a test decides on people who are as satisfied, and show it later with the challenger.

    At one age, a session counts when its window is over, with what was heard within it; as it is heard, it
    counts from its beginning, with what was heard until the look.
    """
    people = People(rng)
    challenger = rng.random(len(people.habit)) < SHARE
    n, user = len(people.user), people.user
    kept = rng.random(n) < 1 / (1 + np.exp(-0.4 - people.habit[user]))
    worth = np.where(kept, KEPT, REVERTED) * (rng.random(n) < SAYS_SO)
    shown = rng.exponential(np.where(challenger[user], later_h, FIRST_H))
    in_time = worth * (shown <= WINDOW_H)
    until_look = worth * (shown <= people.at[:, None] - people.at)  # (looks, sessions), 0 before they begin
    return {
        "at one age": people.decided(challenger, np.cumsum(people.once * in_time[:, None], axis=0)),
        "as it is heard": people.decided(challenger, until_look @ people.once),
    }


def slow_feedback(runs: int, seed: int) -> Row:
    """Return the rates of false promotion and roll-back by the challenger's mean delay in minutes and by the
    way of counting."""
    figures: Row = {}
    for number, later_h in enumerate(LATER_H):
        rng, started = np.random.default_rng([seed, 100 + number]), time.process_time()
        found = [slow(rng, later_h) for _ in range(runs)]
        spent = {"cpu_s": round(time.process_time() - started, 1)}
        figures[f"{60 * later_h:g}"] = {
            way: {
                "promoted": rate(sum(each[way][0] for each in found), runs, nominal=ALPHA, **spent),
                "rolled_back": rate(sum(each[way][1] for each in found), runs, nominal=HARM, **spent),
            }
            for way in found[0]
        }
    return figures
