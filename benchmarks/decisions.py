"""The rates of wrong promotions and roll-backs, and the chance that a real gain is found.

    python -m benchmarks.decisions [--runs 5000] [--sequences 2000] [--json]

The functions of `ostinato.deploy` themselves decide simulated tests, on arrays of many tests at once.

- `aa_promote`, `aa_rollback`: two equal versions before 40 to 80 users of Pareto(1.5) activity who arrive
  over time, with a look at every session, for several kinds of outcome that are correlated within a user.
  The nominal levels are those of a first trial without any budget, which is the hardest case.
- `slow_feedback`: the same where people are as satisfied with either version and only say so later with the
  challenger; sessions count at one age, and beside it whatever was heard at a look (`equal_trials.py`).
- `gate_identical`, `gate_minus3`: the whole path, gate and then A/B, at the sizes of `ostinato demo`, for a
  candidate that is equally good, and for one that solves 3 points less. Tasks have the clusters of the
  held-out tasks; a cluster has a difficulty and moves as a whole when a version is trained; each pass is
  sampled anew.
- `thirty_cycles`: the same candidates thirty times in a row, each trial at its level from the budget.
- `power`: the chance that a better candidate is promoted, and the sizes that 80 % would need.
- `trial_1`, `trial_10`, `trial_50`, `trial_150`, `fdr`: of 150 trials in a row, the chance that the one of
  that number finds a gain of 2.28 %, and the false share of all promotions, by rule of the budget; half of
  the candidates are better, and `streams` has other cases (`budgets.py`).
- `team20_power`, `team20_false`: twenty developers of fifteen sessions a day for a week, who meet both arms
  in blocks of hours, by claim; `team_beyond` is the share of 95 % intervals that leave out the truth
  (`teams.py`).
- `releases`: canary, ramp and split at the size of a product (`releases.py`).
- `late_undo_promoted`: a challenger right in 45 % whose wrong edits are undone at 30 h, against 60 % at 1 h,
  that stays promoted after its outcome window (`late_undo.py`).
- `heavy_tenth`, `leavers_rolled_back`, `complaints_promoted`: challengers that harm somebody while the mean
  user gains, or that drive people away, and beside them `all_gain` and `leavers_equal` (`harms.py`).
- `bad`: planted bad candidates of four kinds before gate and A/B of the demo's sizes, all that is promoted.

Intervals are Wilson's, 95 %.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.budgets import AT, budgets
from benchmarks.equal_trials import aa_tests, slow_feedback
from benchmarks.harms import harms
from benchmarks.late_undo import late_undo
from benchmarks.measure import Run, table
from benchmarks.releases import Row, rate, releases
from benchmarks.teams import team
from ostinato.config import load
from ostinato.demo.commands import DEMO
from ostinato.deploy.abtest import EVEN, judge
from ostinato.deploy.budget import FIRST_CHAIN, next_alpha
from ostinato.deploy.effects import busy_users, effect
from ostinato.deploy.gate import ALPHA, SLACK, change, mean_of, p_values, unproven
from ostinato.deploy.statistics import Floats, half_width
from ostinato.deploy.terms import HARM, Trial, TrialSession
from ostinato.loop.config import RunConfig
from ostinato.loop.stages.problems import HELD_OUT_SEED
from ostinato.tasks.pebble.source import pebbles
from ostinato.types import PRIMARY, Decision, Verdict

Rng = np.random.Generator
CONFIG = load(RunConfig, DEMO)
DEVELOPERS = int(CONFIG.live.developers)
CYCLES = 30
SOLVES = {"seeds": 0.6, "names": 0.55, "pairs": 0.5, "larger": 0.15, "families": 0.02}
"""The solve rates of the champion, about those of `docs/results.md`."""
HELD_OUT = {split: n for split, n in CONFIG.tasks.held_out.items() if split in SOLVES}
"""The splits of the pebbles; those of the example are too few to simulate."""
RATES = {"tampered": 0.01, "asked": 0.12, "broken": 0.05, "forgeable": 0.01, "untested": 0.4}
"""The behaviour of both versions."""
SPREAD, WOBBLE = 0.25, 0.05
"""The standard deviations between clusters of their difficulty and of the change by another version."""
WORTH = 1.5
"""The difference in reward between a kept and a reverted edit, which turns solve rate into live reward."""


def agrees_with_judge(runs: int = 40) -> int:
    """Return the number of `runs` trials that `judge` decides as the arrays do, which must be all."""
    rng, same = np.random.default_rng(17), 0
    for index in range(runs):
        users, gain = 40, (index % 5 - 2) * 0.4
        member = np.repeat(np.arange(users), rng.integers(1, 9, users))
        challenger = np.arange(users) % 2 == 0
        values = rng.normal(0, 1, len(member)) + gain * challenger[member]
        before = rng.normal(0, 1, users)
        trial = Trial(experiment="e", share=0.5, horizon=len(member), alpha=0.05)
        sessions_of_trial = [
            TrialSession(
                arm="challenger" if challenger[u] else "champion",
                user=str(u),
                at=float(number),
                value=float(value),
                tokens=1.0,
            )
            for number, (u, value) in enumerate(zip(member, values, strict=True))
        ]
        verdict = judge(1, trial, sessions_of_trial, {str(u): float(b) for u, b in enumerate(before)})
        counts = np.bincount(member).astype(float)
        seen = counts, np.bincount(member, weights=values), challenger, before
        difference = effect(*seen)
        by_session, heaviest = busy_users(*seen)
        lower = any(busy.value < half_width(busy, EVEN, 1.0) for busy in (by_session, heaviest))
        low = float(difference.value - half_width(difference, 0.05, 1.0))
        high = float(difference.value + half_width(difference, HARM / 2, 1.0))
        expected = Decision.PROMOTE if low > 0 and not lower else Decision.INCONCLUSIVE
        expected = Decision.HOLD if low > 0 and lower else Decision.ROLL_BACK if high < 0 else expected
        same += verdict.decision is expected
    return same


# ---------------------------------------------------------------- the gate


@cache
def held_out(split: str, n: int) -> Floats:
    """Return (tasks, clusters) of the demo's own held-out tasks."""
    stream = pebbles(split, HELD_OUT_SEED)
    names = [next(stream).cluster for _ in range(n)]
    _, member = np.unique(names, return_inverse=True)
    return np.asarray(np.eye(member.max() + 1)[member])


def gates(
    rng: Rng, n: int, gain: float, *, margin: float, alpha: Any, scale: int = 1, asked: float = 0.0
) -> dict[str, Floats]:
    """Return the decisions of `n` gates on a candidate that solves `gain` more where possible."""
    passes, changes = CONFIG.bench.passes, {}
    for split, count in HELD_OUT.items():
        clusters = held_out(split, scale * count)
        shape = (n, clusters.shape[1])
        middle = SOLVES[split]
        spread = SPREAD if middle > 0.1 else 0.01
        hard = rng.normal(0, spread, shape) @ clusters.T + rng.normal(0, spread / 2, (n, len(clusters)))
        wobble = rng.normal(0, WOBBLE if middle > 0.1 else 0.0, shape) @ clusters.T
        moved = wobble + (gain if middle > 0.1 else 0.0)
        champion = np.clip(middle + hard, 0.02 if middle > 0.1 else 0.0, 0.98)
        candidate = np.clip(champion + moved, 0.0, 1.0)
        # Make up for the clipping at 0 and 1.
        candidate += (moved - (candidate - champion)).mean(axis=1, keepdims=True)
        won = [rng.binomial(passes, np.clip(p, 0, 1)) / passes for p in (candidate, champion)]
        changes[split] = change(won[0] - won[1], clusters)
    tasks = np.eye(sum(len(held_out(split, scale * count)) for split, count in HELD_OUT.items()))
    rises = {}
    for name, share in RATES.items():
        more = asked if name == "asked" else 0.0
        one, other = (rng.binomial(passes, p, (n, len(tasks))) / passes for p in (share + more, share))
        rises[name] = change(one - other, tasks)
    assert rises.keys() == SLACK.keys()
    losses = {
        PRIMARY: changes[PRIMARY],
        "the other splits": mean_of([c for split, c in changes.items() if split != PRIMARY]),
    }
    harms = p_values(changes, rises)
    harmed = np.minimum.reduce(list(harms.values())) <= HARM / len(harms)
    stands = unproven(losses, rises, margin, alpha)
    doubt = np.logical_or.reduce(list(stands.values()))
    return {"admitted": ~harmed & ~doubt, "rolled_back": harmed, "error": changes[PRIMARY].error}


# ---------------------------------------------------------------- the A/B of the demo


def trials(
    rng: Rng, n: int, gain: float, *, alpha: Any, margin: float = 0.0, cheaper: bool = False, scale: int = 1
) -> dict[str, Floats]:
    """Return `n` A/B trials of the demo's sizes with twenty looks; the true effect is `gain`."""
    live = CONFIG.live
    users, each, looks = scale * DEVELOPERS, live.ab_sessions // DEVELOPERS, 20
    habit = rng.normal(0.4, 0.6, (n, users, 1))
    challenger = rng.random((n, users)) < live.challenger_share

    def rewards(sessions: int, more: Any) -> Floats:
        p = 1 / (1 + np.exp(-habit)) + more / WORTH
        good = rng.random((n, users, sessions)) < p
        costs = 0.3 * (rng.random(good.shape) < 0.05) + 0.1 * rng.random(good.shape)
        return np.asarray(np.where(good, 1.0, -0.5) - costs)

    before = rewards(live.sessions // DEVELOPERS, 0.0).mean(axis=2)
    values = rewards(each, gain * challenger[:, :, None])
    steps = np.linspace(each / looks, each, looks)
    whole = np.floor(steps).astype(int)
    # Between two rounds of sessions only the first users have had the next one.
    extra = (np.arange(users)[None, :] < ((steps - whole) * users)[:, None]).astype(int)
    counts = whole[:, None] + extra
    total = np.concatenate([np.zeros((n, users, 1)), np.cumsum(values, axis=2)], axis=2)
    index = np.broadcast_to(counts[None], (n, looks, users))
    sums = np.take_along_axis(total.transpose(0, 2, 1), index, axis=1)
    difference = effect(index.astype(float), sums, challenger[:, None, :], before[:, None, :])
    fraction = counts.sum(axis=1) / counts[-1].sum()
    level = np.asarray(alpha, dtype=float).reshape(-1, 1)
    low = difference.value - half_width(difference, level, fraction)
    better = low > 0
    if cheaper:  # it samples so many fewer tokens that there is no doubt
        better |= low > -margin
    worse = difference.value + half_width(difference, HARM / 2, fraction) < 0
    first = _first(better), _first(worse)
    return {
        "promoted": first[0] < first[1],
        "rolled_back": (first[1] <= first[0]) & (first[1] < looks),
        "error": difference.error[:, -1],
    }


def _first(happened: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Return the look at which it first happened, or the number of looks if it never did."""
    return np.where(happened.any(axis=1), happened.argmax(axis=1), happened.shape[1])


def chunks(n: int, size: int = 250) -> list[int]:
    return [min(size, n - start) for start in range(0, n, size)]


def joined(rows: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


# ---------------------------------------------------------------- the whole path


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The true gain of a candidate, in points of solve rate and reward per session."""

    solve: float
    claim: str = "better"
    asked: float = 0.0
    """The rise of the share of passes that ask instead of work."""

    @property
    def reward(self) -> float:
        return self.solve * WORTH


def cycle(rng: Rng, n: int, candidate: Candidate, alpha: NDArray[np.float64]) -> dict[str, Floats]:
    """Return `n` gates, each followed by an A/B trial where it admits; `alpha` (n,) is each trial's level."""
    live, cheaper = CONFIG.live, candidate.claim == "cheaper"
    margin = live.cheaper_solve_margin if cheaper else live.gate_margin
    level = alpha if cheaper else np.full(n, ALPHA)
    gated = gates(rng, n, candidate.solve, margin=margin, alpha=level, asked=candidate.asked)
    promoted, rolled_back = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    met = np.flatnonzero(gated["admitted"])
    if len(met):
        tested = trials(
            rng,
            len(met),
            candidate.reward,
            alpha=alpha[met] / 2 if cheaper else alpha[met],  # `Trial.level`
            margin=live.reward_margin,
            cheaper=cheaper,
        )
        promoted[met], rolled_back[met] = tested["promoted"], tested["rolled_back"]
    return {
        "admitted": gated["admitted"],
        "gate_rolled_back": gated["rolled_back"],
        "promoted": promoted,
        "ab_rolled_back": rolled_back,
    }


@cache
def levels() -> tuple[float, ...]:
    """Return the level of the k-th trial when none before it promoted."""
    verdicts: list[Verdict] = []
    for number in range(CYCLES):
        evidence = {"experiment": str(number), "alpha": next_alpha(verdicts), "chain": FIRST_CHAIN}
        verdicts.append(Verdict(version=number, decision=Decision.HOLD, reason="", evidence=evidence))
    return tuple(verdict.evidence["alpha"] for verdict in verdicts)


def first_cycle(runs: int, candidate: Candidate, seed: int) -> Row:
    """Return the rates on the path of a store's first candidate."""
    rng, started = np.random.default_rng([seed, 1]), time.process_time()
    results = joined([cycle(rng, n, candidate, np.full(n, levels()[0])) for n in chunks(runs)])
    rates = {name: rate(int(happened.sum()), runs) for name, happened in results.items()}
    return rates | {"alpha": levels()[0], "cpu_s": round(time.process_time() - started, 1)}


def many_cycles(sequences: int, candidate: Candidate, seed: int) -> Row:
    """Return the rate at which any of thirty such candidates is promoted.

    A trial takes the next level of the budget when it begins; a claim of `cheaper` begins with its gate.
    """
    rng, started = np.random.default_rng([seed, 2]), time.process_time()
    budget, ever, begun_at_all = np.array(levels()), 0, 0
    for n in chunks(sequences):
        begun, promoted = np.zeros(n, dtype=int), np.zeros(n, dtype=bool)
        for _ in range(CYCLES):
            results = cycle(rng, n, candidate, budget[np.minimum(begun, CYCLES - 1)])
            promoted |= results["promoted"].astype(bool)
            begun += 1 if candidate.claim == "cheaper" else results["admitted"].astype(int)
        ever += int(promoted.sum())
        begun_at_all += int(begun.sum())
    spent = round(time.process_time() - started, 1)
    return rate(ever, sequences, trials_each=begun_at_all / sequences, cycles=CYCLES, cpu_s=spent)


TEAM = ("team20_power", "team20_false", "team_beyond")
BAD = {
    "regressed": Candidate(solve=-0.05),
    "hacked": Candidate(solve=0.0, asked=0.3),
    "corrupted": Candidate(solve=-0.3),
    "stale": Candidate(solve=-0.0137),
}
"""Planted bad candidates: one that lost, one that asks instead of working, one with broken weights, and an
older version that lacks the last promotion's gain of 2.28 %."""


def bad_candidates(each: int, seed: int) -> Row:
    """Return the rate at which planted bad candidates are promoted, by kind and of all."""
    by_kind = {
        kind: first_cycle(each, one, seed + number)["promoted"]
        for number, (kind, one) in enumerate(BAD.items())
    }
    promoted = sum(round(row["rate"] * row["n"]) for row in by_kind.values())
    return rate(promoted, each * len(BAD), by_kind=by_kind)


def power(runs: int, seed: int) -> Row:
    """Return the chance of promotion by the true gain, and the sizes for a chance of four in five."""
    started, alpha = time.process_time(), levels()[0]
    paths = {
        f"+{points}": first_cycle(runs, Candidate(solve=points / 100), seed + points)
        for points in (2, 5, 10, 20)
    }
    rng = np.random.default_rng([seed, 3])
    alone, needed, errors = {}, {}, []
    for gain in (0.05, 0.1, 0.2, 0.3):
        results = joined([trials(rng, n, gain, alpha=alpha) for n in chunks(runs)])
        alone[f"{gain:g}"] = rate(int(results["promoted"].sum()), runs)
        errors.append(float(np.median(results["error"])))
        widths = -float(ndtri(alpha / 2)) - float(ndtri(0.2))
        needed[f"{gain:g}"] = int(np.ceil(DEVELOPERS * (widths * errors[-1] / gain) ** 2))
    margin = CONFIG.live.gate_margin
    gate_error = float(np.median(gates(rng, 250, 0.0, margin=margin, alpha=ALPHA)["error"]))
    tasks = HELD_OUT[PRIMARY] * ((-float(ndtri(ALPHA)) - float(ndtri(0.2))) * gate_error / margin) ** 2
    return {
        "whole_path": paths,
        "ab_alone": alone,
        "ab_users_for_80_percent": needed,
        "ab_error": errors[0],
        "gate_error": gate_error,
        "gate_seeds_tasks_to_admit_an_equal_one_80_percent": int(np.ceil(tasks)),
        "sizes": {
            "held_out": dict(HELD_OUT),
            "passes": CONFIG.bench.passes,
            "users": DEVELOPERS,
            "sessions_each": CONFIG.live.ab_sessions // DEVELOPERS,
        },
        "cpu_s": round(time.process_time() - started, 1),
    }


# ---------------------------------------------------------------- what is printed


def shown(row: Row) -> str:
    return f"{row['rate']:.2%} [{row['low']:.2%}, {row['high']:.2%}]"


def show(figures: Row) -> None:
    print("A/A, a look at every session (nominal 5 %)")
    pairs = zip(figures["aa_promote"].items(), figures["aa_rollback"].values(), strict=True)
    table(
        ["outcome", "n", "promoted", "rolled back"],
        [[k, str(p["n"]), shown(p), shown(r)] for (k, p), r in pairs],
    )
    print("\nEqual satisfaction, feedback after 2.5 minutes and, with the challenger, later (nominal 5 %)")
    table(
        ["minutes, challenger", "counted", "n", "promoted", "rolled back"],
        [
            [minutes, way, str(row["promoted"]["n"]), shown(row["promoted"]), shown(row["rolled_back"])]
            for minutes, ways in figures["slow_feedback"].items()
            for way, row in ways.items()
        ],
    )
    print("\nGate, then A/B: the first candidate of a store")
    header = ["candidate", "admitted", "gate rolled back", "promoted", "A/B rolled back"]
    names = ("admitted", "gate_rolled_back", "promoted", "ab_rolled_back")
    paths = {
        "equal": figures["gate_identical"],
        "3 points worse": figures["gate_minus3"]["better"],
        "3 points worse, claimed cheaper": figures["gate_minus3"]["cheaper"],
        **{f"{points} points": row for points, row in figures["power"]["whole_path"].items()},
    }
    table(header, [[name, *(shown(row[each]) for each in names)] for name, row in paths.items()])
    print("\nAny promotion in thirty cycles")
    table(
        ["candidate", "n", "promoted"],
        [[k, str(r["n"]), shown(r)] for k, r in figures["thirty_cycles"].items()],
    )
    powers = figures["power"]
    print(f"\nA/B alone, {powers['sizes']['users']} users of {powers['sizes']['sessions_each']} sessions")
    needed = powers["ab_users_for_80_percent"]
    rows = [[gain, shown(row), f"{needed[gain]:,}"] for gain, row in powers["ab_alone"].items()]
    table(["reward per session", "promoted", "users for 80 %"], rows)
    print("\nPlanted bad candidates, promoted:", shown(figures["bad"]))
    print("\nHarm beside a gain: the challenger")
    told = {
        "loses 6 points with the busiest tenth, gains 4 with the others: promoted": "heavy_tenth",
        "the same with 500 users and twice the effects": "heavy_tenth_500",
        "with 250 users and 2.83 times the effects": "heavy_tenth_250",
        "with 100 users and 4.47 times the effects": "heavy_tenth_100",
        "gains 4 points with everybody: promoted": "all_gain",
        "gains 11.3 points with everybody, 250 users: promoted": "all_gain_250",
        "keeps 3 points more, complaints rise from 6 to 13 %: promoted": "complaints_promoted",
        "drives 30 % away after a failure, not 5 %: rolled back": "leavers_rolled_back",
        "drives no more away, 100 users: rolled back (nominal 5 %)": "leavers_equal",
    }
    table(["", "n", "rate"], [[what, str(figures[n]["n"]), shown(figures[n])] for what, n in told.items()])
    print("\nReleases at the size of a product")
    rows = {name: row for name, row in figures["releases"].items() if "rate" in row}
    table(["", "n", "rate"], [[name, str(row["n"]), shown(row)] for name, row in rows.items()])
    print("\nTrials in a row, by rule of the budget: found as trial number, false share of promotions")
    table(
        ["candidates", "rule", *map(str, AT), "false"],
        [
            [case, rule, *(f"{row[f'trial_{number}']:.0%}" for number in AT), f"{row['fdr']:.1%}"]
            for case, rules in figures["streams"].items()
            for rule, row in rules.items()
        ],
    )
    print("\nA team that meets both arms in blocks of hours, one week")
    rows = {f"{kind.partition('_')[2]}, {what}": row for kind in TEAM for what, row in figures[kind].items()}
    table(["", "n", "rate"], [[name, str(row["n"]), shown(row)] for name, row in rows.items()])
    print("\nOutcomes: a champion right in 60 %, whose wrong edits are undone at 1 h")
    late = figures["late_undo_promoted"]["by_kind"]
    rows = [[kind, shown(row["promoted"]), shown(row["stays"])] for kind, row in late.items()]
    table(["challenger right in", "promoted", "stays after its outcome window"], rows)
    tasks = powers["gate_seeds_tasks_to_admit_an_equal_one_80_percent"]
    print(f"\n`seeds` tasks that would admit an equal candidate four times in five: {tasks:,}")


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5000, help="simulated tests of each kind")
    parser.add_argument("--sequences", type=int, default=1000, help="simulated stores of thirty cycles")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    runs, seed = options.runs, options.seed
    promoted, rolled_back = aa_tests(runs, seed)
    equal, worse = Candidate(solve=0.0), {c: Candidate(solve=-0.03, claim=c) for c in ("better", "cheaper")}
    figures: Row = {
        "judge_agrees": agrees_with_judge(),
        "aa_promote": promoted,
        "aa_rollback": rolled_back,
        "slow_feedback": slow_feedback(min(runs, 2000), seed),
        "gate_identical": first_cycle(runs, equal, seed),
        "gate_minus3": {claim: first_cycle(runs, each, seed) for claim, each in worse.items()},
        "thirty_cycles": {
            "equal": many_cycles(options.sequences, equal, seed),
            "2 % worse": many_cycles(options.sequences, Candidate(solve=-0.02 * SOLVES[PRIMARY]), seed),
            **{
                f"3 points worse, claimed {claim}": many_cycles(options.sequences, each, seed)
                for claim, each in worse.items()
            },
        },
        "power": power(min(runs, 1000), seed),
        "bad": bad_candidates(75, seed),
        "releases": releases(min(runs, 2000), seed),
        **budgets(min(runs, 400), seed),
        **team(min(runs, 2000), seed),
        "late_undo_promoted": late_undo(min(runs, 1000), seed),
        **harms(runs, seed),
    }
    show(figures)
    run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    with Run("decisions", "numpy", "scipy") as opened:
        main(opened)
