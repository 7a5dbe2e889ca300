"""Streams of trials one after another, each at the level that a rule of the budget gives it.

A stream is 150 trials. The candidate of each is better by a given gain with a given chance, and otherwise
equal to its champion, which is the hardest case that is still a false promotion. A trial has 20,000 users of
five sessions with a look after each round, and three sessions of history of each user, which the comparison
takes out; the error of its estimate is measured with `effects.effect` on such users, and the estimate itself
is then drawn as a Brownian motion.
"""

import time
from collections.abc import Mapping

import numpy as np

from benchmarks.releases import ALIKE, KEEPS, Crowd, Rng, Row
from ostinato.deploy.budget import BudgetRule, chain_of, next_alpha
from ostinato.deploy.statistics import Estimate, Floats, half_width
from ostinato.types import Decision, Verdict

TRIALS, USERS, ROUNDS, HISTORY = 150, 20_000, 5, 3
AT = (1, 10, 50, 150)
"""The trials of which the power is told."""
DRAWS = 400
"""The better candidates that stand before each of those levels."""


def error_of_a_trial(seed: int) -> float:
    """Return the standard error of the change of the rate of kept edits, at the end of such a trial."""
    rng = np.random.default_rng([seed, 20])
    crowd = Crowd.of(rng, 4, USERS, KEEPS, ALIKE, before=HISTORY)
    return float(crowd.step(rng, 0.5, 0.0, ROUNDS)[0].error[:, -1].mean())


def promoted(rng: Rng, drift: Floats, level: Floats) -> Floats:
    """Return 1 where a trial is promoted; `drift`, the gain in errors, and `level` have one entry a trial."""
    looks = np.arange(1, ROUNDS + 1) / ROUNDS
    noise = np.cumsum(rng.standard_normal((*np.shape(drift), ROUNDS)), axis=-1) / np.sqrt(ROUNDS)
    mean = (noise + np.asarray(drift)[..., None] * looks) / looks
    one = Estimate(value=mean, error=1 / np.sqrt(looks), freedom=np.full(ROUNDS, float(USERS)))
    above = mean - half_width(one, np.asarray(level)[..., None], looks) > 0
    return np.asarray(above.any(axis=-1), dtype=np.float64)


def stream(rng: Rng, rule: BudgetRule, gain: float, share: float) -> tuple[list[float], float, float]:
    """Return the levels of the trials, the share of false ones among the promotions, and of all better
    candidates the share that was promoted; `gain` is in errors."""
    verdicts: list[Verdict] = []
    better = rng.random(TRIALS) < share
    found = np.zeros(TRIALS)
    for number in range(TRIALS):
        alpha, chain = next_alpha(verdicts, rule), chain_of(verdicts, rule)
        found[number] = promoted(rng, np.array(gain * better[number]), np.array(alpha))
        decision = Decision.PROMOTE if found[number] else Decision.INCONCLUSIVE
        evidence = {"experiment": str(number), "alpha": alpha, "chain": chain}
        verdicts.append(Verdict(version=number, decision=decision, reason="", evidence=evidence))
    levels = [verdict.evidence["alpha"] for verdict in verdicts]
    return levels, found[~better].sum() / max(1.0, found.sum()), found[better].sum() / max(1, better.sum())


def budget(runs: int, seed: int, rule: BudgetRule, lift: float, share: float) -> Row:
    """Return the power of the trials `AT`, the share of false promotions and that of better ones found."""
    rng, started, gain = np.random.default_rng([seed, 21]), time.process_time(), lift / error_of_a_trial(seed)
    streams = [stream(rng, rule, gain, share) for _ in range(runs)]
    each_stream = {"fdr": [each[1] for each in streams], "found": [each[2] for each in streams]}
    for number in AT:
        levels = np.array([levels[number - 1] for levels, _, _ in streams])[:, None]
        each_stream[f"trial_{number}"] = promoted(rng, np.full((runs, DRAWS), gain), levels).mean(axis=1)
    row: Row = {}
    for name, values in each_stream.items():
        mean, error = float(np.mean(values)), float(1.96 * np.std(values) / np.sqrt(runs))
        row |= {name: mean, f"{name}_low": mean - error, f"{name}_high": mean + error}
    return row | {"n": runs, "gain_in_errors": gain, "cpu_s": round(time.process_time() - started, 1)}


CASES: Mapping[str, tuple[float, float]] = {
    "+2.28 %, half are better": (0.0228 * KEEPS, 0.5),
    "+2.28 %, a fifth": (0.0228 * KEEPS, 0.2),
    "+1 %, half are better": (0.01 * KEEPS, 0.5),
}


def budgets(runs: int, seed: int) -> Row:
    """Return every figure of this file by case and rule, and those of the first case by figure and rule."""
    cases = {
        case: {rule.value: budget(runs, seed, rule, lift, share) for rule in BudgetRule}
        for case, (lift, share) in CASES.items()
    }
    first = next(iter(cases.values()))
    names = [*(f"trial_{number}" for number in AT), "fdr"]
    return {name: {rule: row[name] for rule, row in first.items()} for name in names} | {"streams": cases}
