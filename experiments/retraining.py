"""Retraining: how fast a policy that practised in one harness learns another one.

    python -m experiments.retraining [--seeds 1 2 3 4 5] [--directory runs/retraining] [--plots DIR] [--json]

The last leg of `experiments/dialects.py`, which practises in one harness and serves in another. One
checkpoint is taught both dialects. From it one run practises under `short` from the start, and another one
first under `codex`, on other tasks, and then as long under `short`. The two legs under `short` have the same
tasks, seeds of sessions and settings, and both are measured before and after on the same held-out tasks. A
folder with a report is read, not run again.

What was expected, written down before the first run. What practice under codex brought does not show under
short (`experiments.dialects` found 0.11 of a gain, [-0.09, 0.23]), so both legs begin within 5 points of each
other. It still knows the tasks better, so it needs 0.85 of the sessions to come to where the leg from the
start ends, and ends no more than 3 points below it. The null is that no session is saved.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.dialects import CODEX, FILE, SHORT, gain
from experiments.runs import carry_out, command, outcomes, practised_groups
from experiments.study import Claim, Outcome, Study
from ostinato.deploy.outcomes import TaskOutcome

FIRST, START, AFTER, COMPARED = "under codex", "short from the start", "short after codex", "compared"
VERSIONS = 16
WINDOW = 4
"""The versions over which a share of solved sessions is taken, since one version has 48 sessions."""
OTHER_TASKS = 100
"""What is added to the seed of the practice under codex, so that the leg after it sees new tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraining:
    """The runs of the study below a folder, each carried out when it is first asked for.

    >>> Retraining(directory=Path("runs")).folder(START, 2)
    PosixPath('runs/seed-2/short-from-the-start')
    """

    directory: Path
    smaller: Mapping[str, Any] = field(default_factory=dict)
    """Settings over those of the file of `experiments.dialects`."""

    def folder(self, arm: str, seed: int) -> Path:
        return self.directory / f"seed-{seed}" / arm.replace(" ", "-")

    def taught(self) -> Path:
        """Return the checkpoint that every seed begins with."""
        folder = self.directory / "taught"
        own = {"seed": 1, "bench.profiles": [], "schedule.stages": ["teach"]}
        carry_out(FILE, folder, {**own, **self.smaller})
        return folder / "checkpoints" / "taught"

    def leg(self, arm: str, seed: int) -> Mapping[str, Any]:
        """Return the report of one leg, and carry out what it begins with."""
        begin = self.taught()
        if arm == AFTER:
            self.leg(FIRST, seed)
            begin = self.folder(FIRST, seed) / "learner-practice" / "checkpoint"
        first = arm == FIRST
        settings = {
            "seed": seed + OTHER_TASKS if first else seed,
            "refine.versions": VERSIONS,
            **self.smaller,
            "model.path": str(begin.resolve()),
            "harness.profile": CODEX if first else SHORT,
            "bench.profiles": [],
            "bench.at_once": 8,  # the machine is shared: with more at once sandboxes did not answer in time
            "schedule.stages": ["practice"] if first else ["before", "practice", "after"],
        }
        return carry_out(FILE, self.folder(arm, seed), settings)

    def curve(self, arm: str, seed: int) -> list[float]:
        """Return the share of practice's sessions that each version solved, of tasks that none had seen."""
        self.leg(arm, seed)
        groups = practised_groups(self.folder(arm, seed))
        return [fmean(fmean(group) for group in groups[version]) for version in sorted(groups)]

    def measured(self, arm: str, seed: int, stage: str) -> list[TaskOutcome]:
        """Return what was found on the held-out tasks `before` or `after` a leg."""
        self.leg(arm, seed)
        return outcomes(self.folder(arm, seed), stage)

    def run(self, arm: str, seed: int) -> Outcome:
        """Return the figures of one leg, or what the two legs under short of a seed differ in."""
        if arm == COMPARED:
            return Outcome(figures=self.compared(seed), curves={})
        curve = self.curve(arm, seed)
        figures = {"practice, begin": fmean(curve[:WINDOW]), "practice, end": fmean(curve[-WINDOW:])}
        if arm != FIRST:
            before, after = (self.measured(arm, seed, stage) for stage in ("before", "after"))
            figures |= {
                "held out, before": fmean(row.mean("solved") for row in before),
                "held out, after": fmean(row.mean("solved") for row in after),
                "gain": gain(before, after).estimate,
            }
        name = "solved under codex" if arm == FIRST else "solved under short"
        return Outcome(figures=figures, curves={name: curve})

    def compared(self, seed: int) -> dict[str, float]:
        """Return what practice under codex saved, paired by tasks and seeds of sessions."""
        start, after = (self.curve(arm, seed) for arm in (START, AFTER))
        target = fmean(start[-WINDOW:])
        came = {arm: reached(curve, target) for arm, curve in ((START, start), (AFTER, after))}
        last = len(start)
        return {
            "held out before, after codex - start": gain(
                self.measured(START, seed, "before"), self.measured(AFTER, seed, "before")
            ).estimate,
            "held out after, after codex - start": gain(
                self.measured(START, seed, "after"), self.measured(AFTER, seed, "after")
            ).estimate,
            "on the way, after codex - start": fmean(after) - fmean(start),
            "versions, start": came[START] or last,
            "versions, after codex": came[AFTER] or last,
            "part of the versions saved": 1 - (came[AFTER] or last) / (came[START] or last),
            "not reached": float(came[AFTER] is None),
        }


def reached(curve: Sequence[float], target: float) -> int | None:
    """Return the number of versions after which the mean of the last `WINDOW` first is at `target`.

    >>> reached([0.1, 0.2, 0.3, 0.4, 0.5], 0.3), reached([0.1, 0.2, 0.3, 0.4], 0.5)
    (5, None)
    """
    ends = range(min(WINDOW, len(curve)), len(curve) + 1)
    return next((end for end in ends if fmean(curve[max(0, end - WINDOW) : end]) >= target - 1e-9), None)


def study(runs: Retraining) -> Study:
    """Return the study over these runs."""
    return Study(
        name="retraining",
        question="how fast does what practised in one harness learn another, on a model?",
        shrunk=(
            "0.6 million weights of random start taught once, pebbles of the kind fix alone, "
            f"{VERSIONS} versions of 6 groups of 8 a leg, one direction"
        ),
        arms=(FIRST, START, AFTER, COMPARED),
        run=runs.run,
        claims=(
            Claim(
                text="practice under short gains from the start",
                holds=lambda found: found[START]["gain"].low > 0,
            ),
            Claim(
                text="both legs begin within 5 points of each other on held-out tasks",
                holds=lambda found: (
                    abs(found[COMPARED]["held out before, after codex - start"].estimate) < 0.05
                ),
            ),
            Claim(
                text="the leg after codex needs fewer sessions to where the one from the start ends",
                holds=lambda found: found[COMPARED]["part of the versions saved"].low > 0,
            ),
            Claim(
                text="the leg after codex ends at most 3 points below the one from the start",
                holds=lambda found: found[COMPARED]["held out after, after codex - start"].estimate > -0.03,
            ),
        ),
    )


def costs(runs: Retraining, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the CPU seconds of everything, and of a version of practice under short.

    A report has the CPU seconds of the whole leg: practice has its share of the leg's wall seconds.
    """
    legs = {(arm, seed): runs.leg(arm, seed) for arm in (FIRST, START, AFTER) for seed in seeds}
    taught = carry_out(FILE, runs.directory / "taught", {})
    shares = [
        leg["cpu_s"] * leg["seconds"]["practice"] / sum(leg["seconds"].values()) / leg["practice"]["version"]
        for (arm, _), leg in legs.items()
        if arm != FIRST
    ]
    return {
        "cpu_s": round(taught["cpu_s"] + sum(leg["cpu_s"] for leg in legs.values()), 1),
        "cpu_s_of_a_version": round(fmean(shares), 2),
        "integrity": [leg["integrity"] for leg in legs.values()],
    }


def _lines(more: Mapping[str, Any]) -> Iterator[str]:
    yield f"{more['cpu_s']:,.0f} CPU seconds, {more['cpu_s_of_a_version']} a version under short"


def main() -> None:
    command(
        __doc__,
        Path("runs/retraining"),
        lambda directory: study(Retraining(directory=directory)),
        lambda directory, _results, seeds: costs(Retraining(directory=directory), seeds),
        _lines,
    )


if __name__ == "__main__":
    main()
