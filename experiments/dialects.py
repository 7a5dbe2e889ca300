"""Dialects: a policy that practises in one harness and is served in another.

    python -m experiments.dialects [--seeds 1 2 3 4 5] [--directory runs/dialects] [--plots DIR] [--json]

Unlike the other studies this one trains a model. For each seed one checkpoint is taught by the scripted
teacher in two dialects: `short` (read, edit by exact strings, a command line) and `codex` (a list of words
for the shell, patches, no tool to read or to ask). From it one run practises under the one profile and
another under the other: the same tasks, seeds of sessions and settings. All three are measured under both
profiles on the same held-out tasks. A seed's arm whose folder has a report is read, not run again.

What was expected, written down before the first run. The two dialects share what the policy sees of a task
(files, failures) and hardly any of the tokens that it chooses between, so practice carries over by about 0.4
of its gain, and serving elsewhere costs more than 3 points. A version that practised elsewhere breaks more
calls than one that practised here. The null is that it does not matter where one practises: a transfer of 1,
and a loss of 0.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import t

from experiments.runs import best_of, carry_out, command, outcomes, practised_groups
from experiments.study import LEVEL, Claim, Outcome, Results, Study
from ostinato.deploy.gate import change
from ostinato.deploy.outcomes import TaskOutcome, clusters_of
from ostinato.deploy.statistics import Interval, interval

FILE = Path(__file__).with_name("dialects.toml")
SHORT, CODEX = "short", "codex"
OTHER = {SHORT: CODEX, CODEX: SHORT}
TAUGHT, COMPARED = "taught", "compared"
IN = {SHORT: "practised under short", CODEX: "practised under codex"}
"""The arm that practises under each profile."""
K = 4
"""The sessions of which the best one counts."""
Measured = Mapping[str, Sequence[TaskOutcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialects:
    """The runs of the study below a folder, each carried out when it is first asked for.

    >>> Dialects(directory=Path("runs")).folder("taught", 1)
    PosixPath('runs/seed-1/taught')
    """

    directory: Path
    smaller: Mapping[str, Any] = field(default_factory=dict)
    """Settings over those of the study's file."""

    def folder(self, arm: str, seed: int) -> Path:
        return self.directory / f"seed-{seed}" / arm.replace(" ", "-")

    def settings(self, profile: str | None, seed: int) -> dict[str, Any]:
        """Return the settings over those of the file: of the teaching, or of practice under `profile`."""
        if profile is None:
            return {"seed": seed, **self.smaller}
        return {
            "seed": seed,
            **self.smaller,
            "model.path": str((self.folder(TAUGHT, seed) / "checkpoints" / "taught").resolve()),
            "harness.profile": profile,
            "bench.profiles": [OTHER[profile]],
            "schedule.stages": ["practice", "after"],
        }

    def taught(self, seed: int) -> Measured:
        """Return what the taught checkpoint does under each profile, task by task."""
        return self._measured(TAUGHT, None, seed)

    def practised(self, profile: str, seed: int) -> Measured:
        """Return what the checkpoint that practised under `profile` does under each profile."""
        self.taught(seed)
        return self._measured(IN[profile], profile, seed)

    def _measured(self, arm: str, profile: str | None, seed: int) -> Measured:
        carry_out(FILE, self.folder(arm, seed), self.settings(profile, seed))
        own, stage = (SHORT, "before") if profile is None else (profile, "after")
        stages = {own: stage, OTHER[own]: f"{stage}-{OTHER[own]}"}
        return {name: outcomes(self.folder(arm, seed), stages[name]) for name in OTHER}

    def run(self, arm: str, seed: int) -> Outcome:
        """Return what one arm does under each profile, or what the arms of a seed differ in."""
        if arm == TAUGHT:
            return Outcome(figures=shares(self.taught(seed)), curves={})
        if arm == COMPARED:
            at = {profile: shares(self.practised(profile, seed)) for profile in OTHER}
            return Outcome(figures=differences(at), curves={})
        profile = next(profile for profile, name in IN.items() if name == arm)
        before, after = self.taught(seed), self.practised(profile, seed)
        gains = {f"gain, {name}": gain(before[name], after[name]).estimate for name in OTHER}
        curves = through_practice(practised_groups(self.folder(arm, seed)))
        return Outcome(figures=shares(after) | gains | looks(curves), curves=curves)


def shares(measured: Measured) -> dict[str, float]:
    """Return the shares of sessions that were solved, and in which a call broke, under each profile."""
    return {
        f"{name}, {profile}": fmean(row.mean(name) for row in rows)
        for name in ("solved", "broken")
        for profile, rows in measured.items()
    }


def gain(before: Sequence[TaskOutcome], after: Sequence[TaskOutcome]) -> Interval:
    """Return the gain of one seed, paired by task, its interval clustered by what the split holds out."""
    if [row.task for row in before] != [row.task for row in after]:
        raise ValueError("the versions were measured on other tasks: delete the seed's folder")
    gains = np.array([b.mean("solved") - a.mean("solved") for a, b in zip(before, after, strict=True)])
    within = interval(change(gains, clusters_of(before)), LEVEL)
    return Interval(estimate=float(gains.mean()), low=within.low, high=within.high)


def differences(at: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return what it costs, under each profile, to have practised under the other one."""
    found: dict[str, float] = {}
    for name, cost, sign in (("solved", "loss", 1), ("broken", "broken more", -1)):
        lost = {p: sign * (at[p][f"{name}, {p}"] - at[OTHER[p]][f"{name}, {p}"]) for p in OTHER}
        found |= {f"{cost}, {profile}": value for profile, value in lost.items()}
        found[f"{cost}, both"] = fmean(lost.values())
    return found


def through_practice(groups: Mapping[int, Sequence[Sequence[bool]]]) -> dict[str, list[float]]:
    """Return mean and best of K of the groups of practice by version; no version had seen their tasks.

    A group that lost sessions to failures of ours, and has fewer than K, counts for the mean alone.
    """
    by_version = [groups[version] for version in sorted(groups)]
    whole = [[group for group in some if len(group) >= K] for some in by_version]
    return {
        "mean": [fmean(fmean(group) for group in some) for some in by_version],
        f"best of {K}": [fmean(best_of(group, K) for group in some) for some in whole],
    }


def looks(curves: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return each curve at its begin, half and end: the mean of two versions each."""
    return {
        f"{name}, {when}": fmean(curve[at : at + 2])
        for name, curve in curves.items()
        for when, at in (("begin", 0), ("half", len(curve) // 2 - 1), ("end", len(curve) - 2))
    }


def transfer(results: Results, profile: str) -> Interval:
    """Return the gain under `profile` of practice under the other one, over that of practice under it."""
    away, home = (
        [each.figures[f"gain, {profile}"] for each in results[IN[practised]]]
        for practised in (OTHER[profile], profile)
    )
    return ratio(away, home)


def ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Return the ratio of two paired means with Fieller's interval (J. R. Stat. Soc. B 16, 1954).

    It holds the ratios r for which Student's test does not tell the mean of above - r · below from 0, and has
    no ends where it does not tell the mean of `below` from 0.
    """
    n, a, b = len(above), fmean(above), fmean(below)
    unknown = Interval(estimate=a / b if b else math.nan, low=-math.inf, high=math.inf)
    if n < 2:
        return unknown
    square = float(t.ppf(1 - LEVEL, n - 1)) ** 2 / n
    (vaa, vab), (_, vbb) = np.cov(above, below)
    q, p, r = b * b - square * vbb, a * b - square * vab, a * a - square * vaa
    if q <= 0:
        return unknown
    root = math.sqrt(max(0.0, p * p - q * r))
    return Interval(estimate=a / b, low=(p - root) / q, high=(p + root) / q)


def study(runs: Dialects) -> Study:
    """Return the study over these runs."""
    return Study(
        name="dialects",
        question="what does practice in one harness bring in another, on a model?",
        shrunk=(
            "0.6 million weights of random start, pebbles of the kind fix alone, 2,800 lessons and "
            "1,200 supervised steps, 32 versions of 6 groups of 8"
        ),
        arms=(TAUGHT, *IN.values(), COMPARED),
        run=runs.run,
        claims=(
            Claim(
                text="practice gains where it practises, under both profiles",
                holds=lambda found: all(found[IN[p]][f"gain, {p}"].low > 0 for p in OTHER),
            ),
            Claim(
                text="serving elsewhere costs something, over both profiles: not the null",
                holds=lambda found: found[COMPARED]["loss, both"].low > 0,
            ),
            Claim(
                text="it costs more than 3 points",
                holds=lambda found: found[COMPARED]["loss, both"].estimate > 0.03,
            ),
            Claim(
                text="practice gains something elsewhere too, over both profiles",
                holds=lambda found: fmean(found[IN[p]][f"gain, {OTHER[p]}"].estimate for p in OTHER) > 0,
            ),
            Claim(
                text="a version that practised elsewhere breaks more calls than one that practised here",
                holds=lambda found: found[COMPARED]["broken more, both"].low > 0,
            ),
        ),
    )


def extra(runs: Dialects, results: Results, seeds: Sequence[int]) -> dict[str, Any]:
    """Return what the figures of the arms do not have: transfers, each seed's gains, and the cost."""
    folders = [runs.folder(arm, seed) for seed in seeds for arm in (TAUGHT, *IN.values())]
    reports = [json.loads((folder / "report.json").read_text()) for folder in folders]
    gains = [
        {"seed": seed, "practised": home, "under": under}
        | asdict(gain(runs.taught(seed)[under], runs.practised(home, seed)[under]))
        for seed in seeds
        for home in OTHER
        for under in OTHER
    ]
    return {
        "transfer": {profile: asdict(transfer(results, profile)) for profile in OTHER},
        "gains": gains,
        "cpu_s": round(sum(report["cpu_s"] for report in reports), 1),
        "integrity": [report["integrity"] for report in reports],
    }


def _lines(more: Mapping[str, Any]) -> Iterator[str]:
    for profile, each in more["transfer"].items():
        yield f"transfer to {profile}: {each['estimate']:.2f} [{each['low']:.2f}, {each['high']:.2f}]"
    yield f"{more['cpu_s']:,.0f} CPU seconds"


def main() -> None:
    command(
        __doc__,
        Path("runs/dialects"),
        lambda directory: study(Dialects(directory=directory)),
        lambda directory, results, seeds: extra(Dialects(directory=directory), results, seeds),
        _lines,
    )


if __name__ == "__main__":
    main()
