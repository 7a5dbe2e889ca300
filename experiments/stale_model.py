"""Staleness on a model: what the distance between sampler and trainer costs where tokens share weights.

`experiments.staleness` asks the same of a table, in which a stale gradient points the same way. Here a
transformer practises in `experiments.chains`, at half of its context, from one taught checkpoint; every
session is sampled by the weights of so many versions ago. Tasks and seeds of sampling are shared by all arms,
and the last version is measured on 288 held-out tasks.
"""

from collections import deque
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import torch

from experiments.chains import copied, errands, groups_of, solved
from experiments.staleness import GAPS, NONE, ONE_BEHIND, TRUNCATED, WAY, arm_of
from experiments.study import Claim, Outcome, Study
from experiments.summaries import PERIOD, RISE, periods, taught
from ostinato.train.config import PolicyConfig
from ostinato.train.local import DecoderModel
from ostinato.train.policy import policy_step

SHARE = "half"
VERSIONS, GROUPS, RATE = 32, 4, 5e-4
ARMS = {arm_of(gap, correction): (gap, correction) for gap in GAPS for correction in (NONE, TRUNCATED)}
HELD_OUT, WORTH = "solved, held out", "effective sample size"


@cache
def practised(gap: int, correction: str, seed: int) -> Outcome:
    """Return what came of practice on sessions that are so many versions behind."""
    decoder, chance, tasks = copied(taught()), torch.Generator().manual_seed(seed), errands(seed)
    config = PolicyConfig(tokens_per_session=6.0, correction=correction)  # type: ignore[arg-type]
    past, sampled, worth = deque([copied(decoder)], maxlen=gap + 1), list[float](), list[float]()
    with TemporaryDirectory() as folder:
        model = DecoderModel(decoder, Path(folder))
        for version in range(VERSIONS):
            some = [next(tasks) for _ in range(GROUPS)]
            groups = groups_of(past[0], some, SHARE, chance, version=max(0, version - gap))
            sampled.append(fmean(x for group in groups for x in group.rewards))
            rate = RATE * min(1.0, (version + 1) / RISE)
            stats = policy_step(model, groups, rate, config, version=version)
            worth += [] if stats.effective is None else [stats.effective]
            past.append(copied(decoder))
    figures = {
        HELD_OUT: fmean(solved(decoder, SHARE, seed=seed)),
        WAY: fmean(sampled),
        WORTH: fmean(worth) if worth else 1.0,
    }
    return Outcome(figures=figures, curves={"solved": periods(sampled)})


def run(arm: str, seed: int) -> Outcome:
    """Train one model; a session that is not behind has weights of 1, so both corrections are one there."""
    gap, correction = ARMS[arm]
    found = practised(gap, correction if gap else TRUNCATED, seed)
    name = "no correction" if correction == NONE else "truncated ratio"
    return replace(found, curves={f"solved, {name}": found.curves["solved"]})


STUDY = Study(
    name="stale_model",
    question="what does staleness cost a model, and what does a correction give back?",
    shrunk=(
        "a transformer of 0.09 million weights, taught once, in a world of tokens, stands for the model; "
        "every token is equally stale"
    ),
    arms=tuple(ARMS),
    run=run,
    axis=f"{PERIOD} versions",
    claims=(
        ONE_BEHIND,
        Claim(
            text="sixteen behind and uncorrected ends at least 5 points below on-policy",
            holds=lambda found: (
                found[arm_of(0, NONE)][HELD_OUT].estimate - found[arm_of(16, NONE)][HELD_OUT].estimate >= 0.05
            ),
        ),
        Claim(
            text="at sixteen behind the truncated ratio ends higher than no correction",
            holds=lambda found: (
                found[arm_of(16, TRUNCATED)][HELD_OUT].low > found[arm_of(16, NONE)][HELD_OUT].high
            ),
        ),
        Claim(
            text="on the way, the truncated ratio is no lower than no correction at 4, 8 and 16",
            holds=lambda found: all(
                found[arm_of(gap, TRUNCATED)][WAY].estimate >= found[arm_of(gap, NONE)][WAY].estimate
                for gap in (4, 8, 16)
            ),
        ),
    ),
)
