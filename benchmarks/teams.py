"""Trials within a small team: their errors, and what they find in a week.

A team has developers of Pareto(1.5) activity, fifteen sessions a day on average, fewer at weekends. A session
goes well with a chance that has a part of its developer, of its day, of its block, which all developers share
as a shock, and of the developer's own block. The gain differs between developers. Each block of four hours of
each developer is dealt to an arm; twenty-one looks are taken on the way.
"""

import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.releases import Rng, Row, first, rate
from ostinato.deploy.budget import next_alpha
from ostinato.deploy.crossover import within
from ostinato.deploy.gate import change
from ostinato.deploy.statistics import Floats, half_width
from ostinato.deploy.terms import HARM

KEEPS, A_DAY, DAYS, BLOCKS = 0.6, 15.0, 7, 3
"""The rate of kept edits, the sessions of a developer a day, the days, and the blocks of a working day."""
HABIT, DAY, SHOCK, OWN, GAINS = 0.15, 0.03, 0.05, 0.05, 0.05
"""The standard deviations between developers, days, blocks that all share, blocks of one, and of the gain."""
WEEKDAYS = (1.0, 1.2, 1.2, 1.1, 0.9, 0.3, 0.3)
TEAM, PEOPLE = 20, (5, 10, 20, 50)
FOUND = {"better": 0.1, "suite": 0.03, "cheaper": 0.03}
"""The gain with people at which the power of each rung is told."""
MARGIN, SUITE_TASKS, SUITE_GAIN = 0.08, 250, 0.1
"""The loss that is too much for the last two rungs; the tasks of the suite, and what is gained on it."""


def teams(rng: Rng, n: int, people: int, gain: float, *, blocks: bool = True) -> tuple[Floats, Floats]:
    """Return the counts and the sums of kept sessions, (n, looks, people, 2), until each look."""
    steps = DAYS * BLOCKS
    activity = np.minimum(rng.pareto(1.5, (n, people, 1)) + 1, 20.0) * A_DAY / 2.7  # the mean of one so cut
    daily = np.resize(WEEKDAYS, DAYS) / np.mean(WEEKDAYS)
    sessions = rng.poisson(activity * np.repeat(daily, BLOCKS) / BLOCKS)
    chance = (
        KEEPS
        + rng.normal(0, HABIT, (n, people, 1))
        + np.repeat(rng.normal(0, DAY, (n, 1, DAYS)), BLOCKS, axis=2)
        + rng.normal(0, SHOCK, (n, 1, steps))
        + rng.normal(0, OWN, (n, people, steps))
    )
    gains = gain + rng.normal(0, GAINS, (n, people, 1))
    met = np.where(rng.random(sessions.shape) < 0.5, sessions, 0) if blocks else rng.binomial(sessions, 0.5)
    counts = np.stack([sessions - met, met], axis=-1)
    kept = rng.binomial(counts, np.clip(np.stack([chance, chance + gains], axis=-1), 0.0, 1.0))
    until = [np.cumsum(each, axis=2, dtype=np.float64).swapaxes(1, 2) for each in (counts, kept)]
    return until[0], until[1]


def weeks(rng: Rng, n: int, gain: float, level: float, margin: float = 0.0) -> dict[str, NDArray[np.bool_]]:
    """Return which of `n` weeks show, at any look, that the loss is below `margin`, and which that there is
    one."""
    counts, sums = teams(rng, n, TEAM, gain)
    estimate, done = within(counts, sums), counts.sum(axis=(2, 3))
    fraction = done / done[:, -1:]
    better = first(estimate.value - half_width(estimate, level, fraction) > -margin)
    worse = first(estimate.value + half_width(estimate, HARM / 2, fraction) < 0)
    return {"promoted": better < worse, "rolled_back": (worse <= better) & (worse < counts.shape[1])}


def suites(rng: Rng, n: int, gain: float, level: float) -> NDArray[np.bool_]:
    """Return which of `n` candidates are shown to be better on a suite, in two passes over each task."""
    easy = rng.beta(1.2, 0.8, (n, SUITE_TASKS))  # of which easy * (1 - easy) is 0.16 on average
    solved = [
        rng.binomial(2, np.clip(each, 0, 1)) / 2 for each in (easy + gain * easy * (1 - easy) / 0.16, easy)
    ]
    shown = change(solved[0] - solved[1], np.eye(SUITE_TASKS))
    return np.asarray(shown.value - half_width(shown, level) > 0)


def rungs(rng: Rng, n: int, gains: dict[str, float], suite: float, level: float) -> Row:
    """Return how often each claim is shown in a week, with these gains with people and this one on the suite.

    A claim of two ways to a promotion has half of the level for each; that fewer tokens are sampled is seen.
    """
    found: Row = {"better": rate(int(weeks(rng, n, gains["better"], level)["promoted"].sum()), n)}
    safe = weeks(rng, n, gains["suite"], level / 2, MARGIN)["promoted"]
    found["suite"] = rate(int((safe & suites(rng, n, suite, level)).sum()), n)
    cheap = weeks(rng, n, gains["cheaper"], level / 2, MARGIN)["promoted"]
    return found | {"cheaper": rate(int(cheap.sum()), n)}


def team(runs: int, seed: int) -> Row:
    """Return the power and the errors of a team of twenty by claim, and the coverage by size of the team."""
    rng, started, level = np.random.default_rng([seed, 31]), time.process_time(), next_alpha([])
    power = rungs(rng, runs, FOUND, SUITE_GAIN, level)
    null = {"better": 0.0, "suite": -MARGIN, "cheaper": -MARGIN}
    false = rungs(rng, runs, null, SUITE_GAIN, level)
    false["suite, equal on it"] = rungs(rng, runs, FOUND, 0.0, level)["suite"]
    equal = weeks(rng, runs, 0.0, level)["rolled_back"]
    beyond: Row = {}
    for people in PEOPLE:
        for dealt in ("block", "session"):
            counts, sums = teams(rng, runs, people, 0.0, blocks=dealt == "block")
            estimate = within(counts[:, -1], sums[:, -1])
            outside = np.abs(estimate.value) > half_width(estimate, 0.025)
            beyond[f"{people}, {dealt}"] = rate(int(outside.sum()), runs, nominal=0.05)
    return {
        "team20_power": power,
        "team20_false": false | {"rolled back": rate(int(equal.sum()), runs)},
        "team_beyond": beyond,
        "team_level": level,
        "team_cpu_s": round(time.process_time() - started, 1),
    }
