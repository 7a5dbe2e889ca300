"""The share of a true difference that training sees when wrong edits are undone late.

    python -m benchmarks.maturity [--runs 100] [--json]

Two acts differ in how often their edit is right; each wrong edit is undone after an exponential time.
Sessions are scored by the shipped definition and corrected by its own `late`, as a collection does. `seen_2h`
to `seen_48h` are, by the mean time until the undoing, the shares of the true gap of the reward that the
trained values show: `new` with the shipped definition, within its outcome window, `uncorrected` with its hour
alone, and `before` with the rule that it replaced, which read everything after 24 hours and left out what was
to be known later. `choice` compares ways to correct for late facts by their bias and the noise of one trained
session, over the first fortnight of collections every five hours, where most undoing is seen within the hour
and where hardly any is.

Intervals are 95 %, over independent runs.
"""

import argparse
from collections.abc import Callable
from itertools import product

import numpy as np
from fuzz.late_trials import HOUR, MEASURED_H, reward

from benchmarks.measure import Run, table
from benchmarks.releases import Row
from ostinato.deploy.statistics import Floats
from ostinato.rewards.live.correction import Correction
from ostinato.rewards.live.definition import LIVE

Rng = np.random.Generator
MEANS_H = (2, 12, 24, 48)
RIGHT = (0.75, 0.45)
"""How often the edit of each act is right."""
EVERY_H, DAYS, A_CYCLE = 5.0, 14, 240
"""The hours between two collections, the days in which sessions arrive, and the sessions of one cycle."""
BEFORE_H, LEFT_WEIGHT, LEFT_H = 24.0, 0.2, (24.0, 72.0)
"""The window before, and the parts of its reward that it never trained on: what was left at these ages."""
FINAL_S = 1e9


def rewards(undone_h: Floats, after_s: float) -> Floats:
    """Return the reward at that age of sessions whose edit is undone after so many hours, inf for never.

    Equal facts have equal rewards, so one session is scored for each stretch between two moments that count.
    """
    ends = np.array(sorted({*MEASURED_H, after_s / HOUR}))
    scored = [reward(float(end) - 1e-3, after_s) for end in ends]
    last = reward(float(ends[-1]) + 1e-3, after_s) if after_s < FINAL_S else scored[-1]
    values = np.array([*scored, last])[np.searchsorted(ends, undone_h)]
    return np.where(np.isinf(undone_h), reward(None, after_s), values)


def drawn(rng: Rng, mean_h: float) -> tuple[Floats, Floats]:
    """Return the act of each session, 0 or 1, and the hours until its edit is undone, inf for never."""
    act = rng.integers(0, 2, int(DAYS * 24 / EVERY_H) * A_CYCLE)
    right = rng.random(len(act)) < np.where(act == 0, *RIGHT)
    return act, np.where(right, np.inf, rng.exponential(mean_h, len(act)))


def trained(rng: Rng, undone_h: Floats, correction: Correction) -> Floats:
    """Return what each session is worth to the trainer, by the shipped correction."""
    early, late = rewards(undone_h, LIVE.train_after_s), rewards(undone_h, correction.after_s)
    worths: dict[tuple[float, float | None], float] = {}

    def worth(r: float, mature: float | None) -> float:
        return worths.setdefault((r, mature), correction.worth(r, mature))

    waits = rng.random(len(undone_h)) < correction.share
    told = zip(early.tolist(), late.tolist(), waits, strict=True)
    return np.array([worth(r, mature if wait else None) for r, mature, wait in told])


def fitted(rng: Rng, undone_h: Floats, share: float) -> Floats:
    """Return what each is worth where m, a line through the changes of the mature sessions of a collection,
    stands in the place of the early reward: m for a young session, m + (L - m) / share for a mature one.

    The line of a mature session is fitted without it. In the first week nothing is mature: m is the reward.
    """
    early, late = rewards(undone_h, LIVE.train_after_s), rewards(undone_h, LIVE.late.after_s)
    waits = rng.random(len(undone_h)) < share
    began = np.arange(len(undone_h)) * EVERY_H / A_CYCLE
    ripe_h = began + np.where(waits, LIVE.late.after_s, LIVE.train_after_s) / HOUR
    collected, worth = np.ceil(ripe_h / EVERY_H).astype(int), early.copy()
    for cycle in np.unique(collected[waits]):
        of = np.flatnonzero(collected == cycle)
        mature, r, change = waits[of], early[of], (late - early)[of]
        x = np.stack([np.ones_like(r), r - r[mature].mean()], axis=1)
        inverse = np.linalg.inv(x[mature].T @ x[mature] + 8.0 * np.diag([1.0, r[mature].var() + 1e-6]))
        line = x @ (inverse @ (x[mature].T @ change[mature]))
        leverage = np.einsum("ij,jk,ik->i", x, inverse, x)
        m = np.where(mature, (line - leverage * change) / (1 - leverage), line)
        worth[of] = r + m + np.where(mature, (change - m) / share, 0.0)
    return worth


def gap(values: Floats, act: Floats) -> float:
    return float(values[act == 0].mean() - values[act == 1].mean())


def shares(found: list[float], truth: list[float]) -> Row:
    """Return the share of the true gap with its interval, from the gaps of independent runs."""
    seen, true = np.array(found), float(np.mean(truth))
    share, half = float(seen.mean()) / true, 1.96 * float(seen.std(ddof=1)) / len(seen) ** 0.5 / true
    return {"share": share, "low": share - half, "high": share + half, "runs": len(seen)}


def seen(runs: int, mean_h: int, seed: int) -> Row:
    """Return the shares of the true gap that training sees, now and before."""
    new, before, truth, truth_before, young = ([] for _ in range(5))
    for run in range(runs):
        rng = np.random.default_rng([seed, mean_h, run])
        act, undone = drawn(rng, mean_h)
        final = rewards(undone, FINAL_S)
        new.append(gap(trained(rng, undone, LIVE.late), act))
        young.append(gap(rewards(undone, LIVE.train_after_s), act))
        before.append(gap(rewards(undone, BEFORE_H * HOUR), act))
        truth.append(gap(final, act))
        truth_before.append(gap(final + LEFT_WEIGHT * sum(undone > at for at in LEFT_H), act))
    row = {"new": shares(new, truth), "before": shares(before, truth_before)}
    return row | {"uncorrected": shares(young, truth), "n": runs * len(act)}


WAYS: dict[str, Callable[[Rng, Floats, float], Floats]] = {
    "mature alone, weighted by 1 / share": lambda rng, undone, share: _weighted(
        rewards(undone, LIVE.late.after_s), rng.random(len(undone)) < share, share
    ),
    "early reward + change / share": lambda rng, undone, share: trained(
        rng, undone, Correction(share=share, after_s=LIVE.late.after_s)
    ),
    "doubly robust, fitted on a collection": fitted,
}
"""The ways to correct for late facts: what each session is worth to the trainer."""


def _weighted(late: Floats, waits: Floats, share: float) -> Floats:
    return late.mean() + (late - late.mean()) * waits / share


def choice(runs: int, seed: int) -> Row:
    """Return the share of the gap seen by each way, and the standard deviation of one trained session."""
    figures: Row = {}
    for mean_h, share, way in product((0.5, 24.0), (0.1, 0.2, 0.4), WAYS):
        found, truth, noise = [], [], []
        for run in range(runs):
            rng = np.random.default_rng([seed, 7, run])
            act, undone = drawn(rng, mean_h)
            values = WAYS[way](rng, undone, share)
            found.append(gap(values, act))
            truth.append(gap(rewards(undone, FINAL_S), act))
            noise.append(float(values.std()))
        row = shares(found, truth) | {"noise": float(np.mean(noise))}
        figures[f"{way}, share {share:g}, undone after {mean_h:g} h"] = row
    return figures


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="independent fortnights of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    figures: Row = {f"seen_{mean}h": seen(options.runs, mean, options.seed) for mean in MEANS_H}
    figures["choice"] = choice(max(2, options.runs // 5), options.seed)
    header = ["undone after", "new", "before", "after an hour, uncorrected", "sessions"]
    rules = ("new", "before", "uncorrected")
    rows = [
        [
            f"{mean} h",
            *(_shown(figures[f"seen_{mean}h"][each]) for each in rules),
            f"{figures[f'seen_{mean}h']['n']:,}",
        ]
        for mean in MEANS_H
    ]
    table(header, rows)
    print("\nWays to correct")
    ways = [[way, _shown(row), f"{row['noise']:.2f}"] for way, row in figures["choice"].items()]
    table(["way", "share of the gap seen", "standard deviation of a session"], ways)
    run.finish(figures, as_json=options.json)


def _shown(row: Row) -> str:
    return f"{row['share']:.1%} [{row['low']:.1%}, {row['high']:.1%}]"


if __name__ == "__main__":
    with Run("maturity", "numpy") as opened:
        main(opened)
