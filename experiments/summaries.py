"""Summaries trained with the advantage of their chain, against summaries that are left out of the loss.

In `experiments.chains` a transformer practises from one taught checkpoint: a third of the groups at full
context, a third at half and a third at a quarter of it. One arm trains every token that was sampled, the
other all but those of summaries, as `practice.train_summaries = false` does. Tasks and seeds of sampling are
shared.

The compaction error is the share solved at full context less that at a half or at a quarter, on 288 held-out
tasks; also of the taught checkpoint with its own summaries, with ones that know everything, and empty ones.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from experiments.chains import EMPTY, ORACLE, OWN, PARTS, Errand, copied, errands, groups_of, held_out
from experiments.chains import solved as solves
from experiments.chains import taught as teach
from experiments.study import LEVEL, Claim, Outcome, Study
from ostinato.deploy.gate import change
from ostinato.deploy.outcomes import TaskOutcome, clusters_of
from ostinato.deploy.statistics import interval
from ostinato.model.decoder import Decoder
from ostinato.train.config import PolicyConfig
from ostinato.train.local import DecoderModel
from ostinato.train.policy import policy_step

VERSIONS, GROUPS, RATE, RISE = 40, 4, 1e-3, 8
"""`GROUPS` of eight sessions at each share of the context are one version."""
STARTS = {"taught": OWN, "taught, oracle summaries": ORACLE, "taught, empty summaries": EMPTY}
TRAINED, MASKED = "summaries trained", "summaries masked"
SMALLER = ("half", "quarter")
PERIOD = 8
"""The versions that one point of a curve covers."""


@cache
def taught() -> Decoder:
    """Return the checkpoint that every seed and arm begins with."""
    return teach()


@cache
def practised(arm: str, seed: int) -> tuple[Decoder, dict[str, list[float]]]:
    """Return the last version of an arm, and the share that practice solved at each share of the context."""
    decoder, chance, tasks = copied(taught()), torch.Generator().manual_seed(seed), errands(seed)
    config, summaries = PolicyConfig(tokens_per_session=8.0), arm == TRAINED
    seen: dict[str, list[float]] = {share: [] for share in PARTS}
    with TemporaryDirectory() as folder:
        model = DecoderModel(decoder, Path(folder))
        for version in range(VERSIONS):
            groups = []
            for share in PARTS:
                some: list[Errand] = [next(tasks) for _ in range(GROUPS)]
                groups += groups_of(decoder, some, share, chance, version=version, summaries=summaries)
                seen[share].append(_mean([x for group in groups[-GROUPS:] for x in group.rewards]))
            rate = RATE * min(1.0, (version + 1) / RISE)
            policy_step(model, groups, rate, config, version=version)
    return decoder, {f"solved, {share}": periods(each) for share, each in seen.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def periods(curve: list[float]) -> list[float]:
    """Return the means of `PERIOD` versions each, since few sessions make one version."""
    return [_mean(curve[at : at + PERIOD]) for at in range(0, len(curve), PERIOD)]


def outcomes(arm: str, seed: int) -> dict[str, list[TaskOutcome]]:
    """Return what an arm solves of the held-out tasks at each share of the context."""
    decoder = taught() if arm in STARTS else practised(arm, seed)[0]
    writer = STARTS.get(arm, OWN)
    return {share: _measured(decoder, share, seed, writer) for share in PARTS}


def _measured(decoder: Decoder, share: str, seed: int, writer: str) -> list[TaskOutcome]:
    solved = solves(decoder, share, seed=seed, summaries=writer)
    return [
        TaskOutcome(task=task.id, split="sets", cluster=task.cluster, solved=(each,))
        for task, each in zip(held_out(), solved, strict=True)
    ]


def run(arm: str, seed: int) -> Outcome:
    """Measure one arm on one seed."""
    rates = {
        share: _mean([each.mean("solved") for each in rows]) for share, rows in outcomes(arm, seed).items()
    }
    figures = {f"solved, {share}": rate for share, rate in rates.items()}
    figures |= {f"error, {share}": rates["full"] - rates[share] for share in SMALLER}
    if arm in STARTS:
        return Outcome(figures=figures, curves={})
    decoder, curves = practised(arm, seed)
    with_oracle = solves(decoder, "quarter", seed=seed, summaries=ORACLE)
    figures["quarter, oracle"] = sum(with_oracle) / len(with_oracle)
    return Outcome(figures=figures, curves=curves)


def within_seeds(arm: str, seeds: range) -> Mapping[str, Any]:
    """Return each compaction error of an arm, its interval clustered by held-out sets, mean over seeds."""
    found = [outcomes(arm, seed) for seed in seeds]
    clusters, intervals = clusters_of(found[0]["full"]), {}
    for share in SMALLER:
        lost = [
            [a.mean("solved") - b.mean("solved") for a, b in zip(each["full"], each[share], strict=True)]
            for each in found
        ]
        intervals[share] = asdict(interval(change(np.mean(lost, axis=0), clusters), LEVEL))
    return intervals


FULL, HALF, QUARTER = "solved, full", "error, half", "error, quarter"
STUDY = Study(
    name="summaries",
    question="do summaries have to be trained, or only to be read?",
    shrunk=(
        "a transformer of 0.09 million weights, taught once, in a world of tokens, stands for the model, its "
        "harness and its tasks"
    ),
    arms=(*STARTS, TRAINED, MASKED),
    run=run,
    axis=f"{PERIOD} versions",
    claims=(
        Claim(
            text="at a quarter, trained summaries lose less than masked ones",
            holds=lambda found: found[TRAINED][QUARTER].high < found[MASKED][QUARTER].low,
        ),
        Claim(
            text="trained summaries lose at most 10 points at a quarter",
            holds=lambda found: found[TRAINED][QUARTER].estimate <= 0.1,
        ),
        Claim(
            text="masked summaries lose at a quarter no less than half of what the taught ones lose",
            holds=lambda found: found[MASKED][QUARTER].estimate >= found["taught"][QUARTER].estimate / 2,
        ),
        Claim(
            text="at full context the two are within 3 points of each other",
            holds=lambda found: abs(found[TRAINED][FULL].estimate - found[MASKED][FULL].estimate) <= 0.03,
        ),
        Claim(
            text="the range: oracle summaries lose at most 5 points, empty ones at least 80 at a quarter",
            holds=lambda found: (
                found["taught, oracle summaries"][QUARTER].estimate <= 0.05
                and found["taught, empty summaries"][QUARTER].estimate >= 0.8
            ),
        ),
    ),
)


def main() -> None:
    """Print the errors of the mean over five seeds, their intervals clustered by held-out sets, as JSON."""
    print(json.dumps({arm: within_seeds(arm, range(1, 6)) for arm in STUDY.arms}))


if __name__ == "__main__":
    main()
