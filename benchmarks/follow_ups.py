"""The reader of follow-ups that needs no service, on labelled lines of two generators.

    python -m benchmarks.follow_ups [--resamples 2000] [--judge URL --model NAME] [--json]

The 330 lines ship with the package (`rewards/follow_ups/lines.py` says how they were made and labelled). Each
generator's lines are read by a classifier that was fitted on the other's, so nothing is read that was learnt.
The rules were written by the writer of the lines, so they flatter themselves on both. The peer is the rules
alone, and with --judge a language model. Intervals are 95 % of a bootstrap over lines.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import aiohttp
import numpy as np
from fuzz.agreement import agreement

from ostinato.loop.stages.follow_ups import KEY
from ostinato.rewards.follow_ups.baseline import LabelledLine, dissatisfaction, labelled_lines, ruled
from ostinato.rewards.follow_ups.judge import ModelJudge
from ostinato.rewards.naive_bayes import NaiveBayes

LINES = labelled_lines()
OTHER = {"grammar": "written", "written": "grammar"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One reader on the lines of one generator."""

    reader: str
    lines: str
    n: int
    precision: float
    recall: float
    kappa: float
    kappa_low: float
    kappa_high: float


def read(reader: str, lines: str, truth: Sequence[bool], found: Sequence[bool], resamples: int) -> Read:
    whole, chance = agreement(truth, found), np.random.default_rng(1)
    draws = chance.integers(0, len(truth), (resamples, len(truth)))
    kappas = [agreement([truth[i] for i in draw], [found[i] for i in draw]).kappa for draw in draws]
    low, high = np.quantile(kappas, (0.025, 0.975))
    return Read(
        reader=reader,
        lines=lines,
        n=whole.n,
        precision=round(whole.precision, 3),
        recall=round(whole.recall, 3),
        kappa=round(whole.kappa, 3),
        kappa_low=round(float(low), 3),
        kappa_high=round(float(high), 3),
    )


def readers(generator: str) -> dict[str, Callable[[LabelledLine], bool]]:
    """Return the readers of one generator's lines, fitted on the other's."""
    fitted = NaiveBayes((line.text, line.intended) for line in LINES if line.generator == OTHER[generator])
    return {
        "rules and classifier": lambda line: dissatisfaction(line.text, fitted) >= 0.5,
        "classifier alone": lambda line: fitted.probabilities(line.text)[True] >= 0.5,
        "rules alone": lambda line: (ruled(line.text) or 0.0) >= 0.5,
    }


async def judged(url: str, model: str) -> list[float | None]:
    async with aiohttp.ClientSession() as http:
        judge = ModelJudge(http, url, model, os.environ.get(KEY, ""))
        return [await judge.probability(line.text) for line in LINES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--judge", default="", help="an OpenAI-compatible address")
    parser.add_argument("--model", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    intended, second = [line.intended for line in LINES], [line.read for line in LINES]
    rows = [read("second labelling", "both", intended, second, options.resamples)]
    for generator in OTHER:
        some = [line for line in LINES if line.generator == generator]
        truth = [line.intended for line in some]
        for name, reader in readers(generator).items():
            rows.append(read(name, generator, truth, [reader(line) for line in some], options.resamples))
    if options.judge:
        answers = asyncio.run(judged(options.judge, options.model))
        pairs = [(a, b >= 0.5) for a, b in zip(intended, answers, strict=True) if b is not None]
        print(f"{options.model}: {len(LINES) - len(pairs)} lines without an answer are left out")
        rows.append(read(options.model, "both", *map(list, zip(*pairs, strict=True)), options.resamples))
    for row in rows:
        print(
            f"{row.reader:<22} {row.lines:<8} n {row.n:<4} precision {row.precision:.3f}  "
            f"recall {row.recall:.3f}  kappa {row.kappa:.3f} [{row.kappa_low:.3f}, {row.kappa_high:.3f}]"
        )
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
