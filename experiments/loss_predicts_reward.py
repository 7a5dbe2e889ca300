"""Loss and reward: does a lower loss after pretraining mean more reward after the same practice?

    python -m experiments.loss_predicts_reward [--seeds 1 2 3] [--directory runs/loss] [--plots DIR] [--json]

Random weights are pretrained on the Python of installed packages at three levels of compute, each four times
the one below; every level has a whole schedule of its own. Each checkpoint is then taught by the same lessons
and practises for the same number of versions, on the same tasks and seeds of sessions. The loss is that after
pretraining, in bits a byte of a package held out; the reward is the share of held-out tasks that are solved,
after teaching and after practice. Each run draws these by its own secret, so they are other ones of one kind
at each level, and add chance to the comparison, but no bias. A seed has other weights, lessons and tasks. A
folder with a report is read, not run again.

What was expected, written down before the first run. Each level lowers the loss by more than 0.1 bits a byte.
Over all runs the rank correlation of loss and reward after practice is below -0.5; within a seed reward falls
by 10 points or more for each bit a byte, and the interval over seeds leaves 0 out. The null is that a level
says nothing: levels may then change places within a seed, which gives an exact p-value.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations, product
from math import atanh, sqrt, tanh
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import norm, spearmanr

from experiments.runs import carry_out, command, outcomes, overrides, practised_groups
from experiments.study import Claim, Outcome, Results, Study
from ostinato.config import load
from ostinato.data.build import build
from ostinato.data.config import CorpusConfig, CorpusSource
from ostinato.loop.config import RunConfig
from ostinato.loop.run import START, Run
from ostinato.loop.stages.prepare import prepare
from ostinato.model.checkpoint import load_config, load_meta
from ostinato.model.create import create
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.pretrain.config import PretrainPhase, PretrainProcess
from ostinato.train.pretrain.run import train

FILE = Path(__file__).with_suffix(".toml")
PACKAGES, HELD_OUT = ("rich", "starlette", "pytest", "httpx", "uvicorn"), "httpcore"
LEVELS: Mapping[str, int] = {"1": 32_768, "4": 131_072, "16": 524_288}
"""The tokens of each level; the weights are as many, so compute is in proportion."""
COMPARED = "compared"
BITS, TAUGHT, REWARD = "bits a byte", "held out, taught", "held out, practised"
LENGTH, BATCH, RATE = 256, 2048, 3e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """The runs of the study below a folder, each carried out when it is first asked for.

    >>> Pretrained(directory=Path("runs")).folder("4", 2)
    PosixPath('runs/seed-2/level-4')
    """

    directory: Path
    levels: Mapping[str, int] = field(default_factory=lambda: LEVELS)
    smaller: Mapping[str, Any] = field(default_factory=dict)
    """Settings over those of the study's file."""

    def folder(self, level: str, seed: int) -> Path:
        return self.directory / f"seed-{seed}" / f"level-{level}"

    def begin(self) -> Path:
        """Return a checkpoint of random weights, whose tokenizer and shape all runs have."""
        run = Run(directory=self.directory / "begin")
        asyncio.run(prepare(load(RunConfig, FILE, overrides(self.smaller)), run))
        return run.checkpoint(START)

    def corpus(self) -> Path:
        """Return the corpus that every level reads."""
        folder = self.directory / "corpus"
        if not folder.exists():
            sources = (
                CorpusSource(name="code", packages=PACKAGES),
                CorpusSource(name="held", packages=(HELD_OUT,), held_out=True),
            )
            build(CorpusConfig(sources=sources, tokenizer=self.begin()), folder, Tokenizer.load, lambda _: ())
        return folder

    def pretrained(self, level: str, seed: int) -> Path:
        """Return the checkpoint of a level, whose seed draws the first weights and the rows."""
        out = self.folder(level, seed).with_name(f"pretrained-{level}")
        if not out.exists():
            start = self.folder(level, seed).with_name("random")
            Tokenizer.load(self.begin()).save(start)
            create(start, load_config(self.begin()), seed, load_meta(self.begin()).harness)
            tokens = self.levels[level]
            phase = PretrainPhase(length=LENGTH, tokens=tokens, batch_tokens=BATCH, learning_rate=RATE)
            train(
                PretrainProcess(
                    start=start, corpus=self.corpus(), out=out, phases=(phase,), seed=seed,
                    evaluate_every=phase.steps, evaluate_rows=64, save_every=phase.steps,
                ),
                lambda: False,
            )  # fmt: skip
        return out

    def loss(self, level: str, seed: int) -> float:
        """Return the bits a byte of held-out code after pretraining, which its journal ends with."""
        journal = self.pretrained(level, seed).with_name(f"pretrained-{level}.run") / "pretrain.jsonl"
        return float(json.loads(journal.read_text().splitlines()[-1])["bits"])

    def report(self, level: str, seed: int) -> Mapping[str, Any]:
        settings = {**self.smaller, "seed": seed, "model.path": str(self.pretrained(level, seed).resolve())}
        return carry_out(FILE, self.folder(level, seed), settings)

    def solved(self, level: str, seed: int, stage: str) -> float:
        self.report(level, seed)
        return fmean(row.mean("solved") for row in outcomes(self.folder(level, seed), stage))

    def run(self, arm: str, seed: int) -> Outcome:
        """Return the figures of one level, or the line through those of a seed."""
        if arm == COMPARED:
            found = [self.run(level, seed).figures for level in self.levels]
            bits = [each[BITS] for each in found]
            return Outcome(
                figures={
                    "slope, taught": slope(bits, [each[TAUGHT] for each in found]),
                    "slope, practised": slope(bits, [each[REWARD] for each in found]),
                    "least step of loss": min(a - b for a, b in pairwise(bits)),
                },
                curves={},
            )
        self.report(arm, seed)
        groups = practised_groups(self.folder(arm, seed))
        figures = {BITS: self.loss(arm, seed)}
        figures |= {name: self.solved(arm, seed, at) for name, at in ((TAUGHT, "before"), (REWARD, "after"))}
        curve = [fmean(fmean(group) for group in groups[version]) for version in sorted(groups)]
        return Outcome(figures=figures, curves={"solved in practice": curve})


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of the line of least squares.

    >>> round(slope([2.0, 3.0, 4.0], [0.5, 0.3, 0.1]), 6)
    -0.2
    """
    return float(np.polyfit(x, y, 1)[0])


def ranks(seeds: Sequence[Sequence[tuple[float, float]]]) -> dict[str, float]:
    """Return the rank correlation over all runs, pairs of loss and reward by seed, with its interval.

    The interval is that of Bonett and Wright, "Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations" (2000). `p` is the share of all orders of the rewards within the seeds that
    correlate as negatively. Rewards that are all alike correlate with nothing.

    >>> ranks([[(3.0, 0.1), (2.0, 0.2), (1.0, 0.3)]] * 2)["p"]
    0.027777777777777776
    """
    bits = [bits for seed in seeds for bits, _ in seed]
    rewards = [[reward for _, reward in seed] for seed in seeds]

    def correlation(orders: Sequence[Sequence[float]]) -> float:
        flat = [reward for order in orders for reward in order]
        return float(spearmanr(bits, flat).statistic) if len(set(flat)) > 1 else 0.0

    found = correlation(rewards)
    orders = [correlation(each) for each in product(*(permutations(seed) for seed in rewards))]
    half = norm.ppf(0.975) * sqrt((1 + found**2 / 2) / max(1, len(bits) - 3))
    middle = atanh(max(-0.999999, min(0.999999, found)))
    return {
        "estimate": found,
        "low": tanh(middle - half),
        "high": tanh(middle + half),
        "p": fmean(each <= found + 1e-12 for each in orders),
        "runs": len(bits),
    }


def study(runs: Pretrained) -> Study:
    """Return the study over these runs."""
    levels = list(runs.levels)
    return Study(
        name="loss_predicts_reward",
        question="does a lower loss after pretraining mean more reward after the same practice?",
        shrunk=(
            "0.5 million weights of random start, "
            f"{', '.join(f'{tokens:,}' for tokens in runs.levels.values())} tokens of Python, pebbles of the "
            "kind fix, 6 versions of 8 groups of 8"
        ),
        arms=(*levels, COMPARED),
        run=runs.run,
        claims=(
            Claim(
                text="each level lowers the loss by more than 0.1 bits a byte",
                holds=lambda found: found[COMPARED]["least step of loss"].low > 0.1,
            ),
            Claim(
                text="reward after practice falls by 10 points or more for each bit a byte",
                holds=lambda found: found[COMPARED]["slope, practised"].estimate <= -0.1,
            ),
            Claim(
                text="the interval of that slope leaves 0 out",
                holds=lambda found: found[COMPARED]["slope, practised"].high < 0,
            ),
        ),
    )


def ranks_of(runs: Pretrained, results: Results) -> dict[str, Any]:
    """Return the rank correlations of loss and reward over all runs."""
    found = [results[level] for level in runs.levels]
    by_seed = [[outcome.figures for outcome in some] for some in zip(*found, strict=True)]
    return {
        f"ranks, {name}": ranks([[(each[BITS], each[name]) for each in seed] for seed in by_seed])
        for name in (TAUGHT, REWARD)
    }


def _lines(more: Mapping[str, Any]) -> Iterator[str]:
    for name, found in more.items():
        yield (
            f"{name}: {found['estimate']:.2f} [{found['low']:.2f}, {found['high']:.2f}] over {found['runs']} "
            f"runs, p = {found['p']:.3f} where levels change places within a seed"
        )


def draw(study: Study, results: Results, path: Path) -> None:
    """Draw reward against loss, one point a run, and the line of each seed."""
    from matplotlib.figure import Figure

    levels = [arm for arm in study.arms if arm != COMPARED]
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    for panel, name in zip(figure.subplots(1, 2, sharey=True), (TAUGHT, REWARD), strict=True):
        points = np.array([[(o.figures[BITS], o.figures[name]) for o in results[level]] for level in levels])
        for seed in range(points.shape[1]):
            panel.plot(*points[:, seed].T, color="0.8", zorder=0)
        for level, some in zip(levels, points, strict=True):
            panel.scatter(*some.T, label=f"{level} × the compute")
        panel.set(title=name, xlabel="loss after pretraining, bits a byte")
        panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def main() -> None:
    command(
        __doc__,
        Path("runs/loss"),
        lambda directory: study(Pretrained(directory=directory)),
        lambda directory, results, _seeds: ranks_of(Pretrained(directory=directory), results),
        _lines,
        picture=draw,
    )


if __name__ == "__main__":
    main()
