"""Practice beside TRL 1.16, from the same taught checkpoint, in two tiers.

    python -m benchmarks.learning --peer trl --peer-python VENV/bin/python [--seeds 1 2] [--versions 9]

Tier A has each side as it ships: our practice stage beside GRPOTrainer with an environment of our tools. In
tier B only the learner differs: a rollout function of TRL's lets our harness, gateway and engine sample, and
our side is synchronous. Each seed is taught once, without experts. Both sides see the same tasks in the same
order, with the same tokenizer, sandbox, verifier, reward, batch, group size, rate, clip and optimizer. A
reply that cannot be read ends the session on both sides, as it does in TRL.

Wall and CPU seconds count all processes of a side, from its first session to the moment a version is there;
`start` has what came before. Kept versions are measured afterwards on held-out K1 tasks by our own bench, on
all sides with the same engine. `fuzz/arrival.py` says how a target is arrived at and what is censored. A
folder of a run that has a result is read, not run again.
"""

import argparse
import asyncio
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fuzz.arrival import Curve, Median, Ratio, median, ratio
from rich.console import Console
from torch import Tensor

from benchmarks.learning_legs import Leg, Row, config_of, kept, practise_leg
from benchmarks.measure import Run as Measured
from benchmarks.measure import table
from ostinato.bench.run import outcome
from ostinato.deploy.outcomes import score
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.http import create_app, serve
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.loop.folder import open_run
from ostinato.loop.pipeline import run_pipeline
from ostinato.loop.resources import open_resources
from ostinato.loop.run import Run
from ostinato.loop.show import Show
from ostinato.loop.stages.problems import held_out
from ostinato.model.checkpoint import load as load_checkpoint
from ostinato.rollout.sampling import sampling_seed
from ostinato.types import Arm, Source, Task, new_id

SIDES = ("ours", "trl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """The held-out tasks, each with the seed of its tokens, so that equal weights solve the same ones."""

    runner: EpisodeRunner
    tasks: Sequence[Task]
    seed: int

    async def sit(self, at_once: int) -> Row:
        """Return the solve rate of the version that is served, as the bench scores it."""
        slots = asyncio.Semaphore(at_once)
        episodes = await asyncio.gather(*(self._episode(task, slots) for task in self.tasks))
        return asdict(score([outcome([episode]) for episode in episodes]))

    async def _episode(self, task: Task, slots: asyncio.Semaphore) -> Episode:
        seed = sampling_seed(self.seed, task.key, 0)
        async with slots:
            ended, left = await self.runner.attempt(
                task, CardUser(task), source=Source.BENCH, session_id=new_id(), seed=seed
            )
            episode = await self.runner.verify(task, ended, left)
        if episode.void is not None:
            raise SystemExit(f"held-out task {task.id} is void: {episode.void}; the same command goes on")
        return episode


def compare(arguments: Sequence[str], run: Measured) -> tuple[Row, bool]:
    """Run what is missing, print a table, and return the figures and whether JSON is wanted."""
    options = _options(arguments)
    torch.set_num_threads(1)
    legs, solved = [], []
    for seed in options.seeds:
        taught = asyncio.run(_teach(seed, options))
        for tier in options.tiers:
            for side in SIDES:
                leg = Leg(seed=seed, tier=tier, side=side, folder=options.directory / f"{seed}-{tier}-{side}")
                if not leg.result.exists():
                    asyncio.run(practise_leg(leg, taught, options, run.cpu))
                legs.append(leg)
        mine = [leg for leg in legs if leg.seed == seed]
        solved.append(asyncio.run(_measure(mine, taught, options)))
    figures = _figures(legs, solved, options)
    _show(figures)
    return figures, options.json


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning --peer trl", description=__doc__)
    parser.add_argument("--peer-python", required=True, help="an interpreter that has trl")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--tiers", nargs="+", choices=("a", "b"), default=["a", "b"])
    parser.add_argument("--versions", type=int, default=32)
    parser.add_argument("--every", type=int, default=2, help="keep and measure every so many versions")
    parser.add_argument("--tasks", type=int, default=288, help="held-out tasks")
    parser.add_argument(
        "--targets",
        nargs="+",
        default=["40", "50", "60"],
        help="solve rates in percent; +10 is 10 points above the taught checkpoint of the seed",
    )
    parser.add_argument("--peer-threads", type=int, default=2, help="threads of torch in TRL's process")
    parser.add_argument("--peer-continuous", action="store_true", help="continuous batching in TRL")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of both")
    parser.add_argument("--directory", type=Path, default=Path("runs/learning-trl"))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


async def _teach(seed: int, options: argparse.Namespace) -> Run:
    """Return the run folder of a taught checkpoint, which is never changed afterwards."""
    run, config = Run(directory=options.directory / f"{seed}-taught"), config_of(seed, options)
    opened = open_run(run, config, fresh=False)
    if not (run.directory / "stages" / "teach.json").exists():
        show = Show(Console(stderr=True))

        def nobody(_: object) -> Any:
            raise AssertionError("no cycle is listed")

        await run_pipeline(config, run, show, nobody, resumed=opened.resumed)
    return run


async def _measure(legs: Sequence[Leg], taught: Run, options: argparse.Namespace) -> Row:
    """Return the solve rate of each kept version of each leg; what was measured before is read."""
    seed = legs[0].seed
    file = options.directory / f"{seed}-solved.json"
    known: Row = json.loads(file.read_text()) if file.exists() else {}
    versions = kept(options)
    wanted = {"taught": None} | {f"{leg.tier}/{leg.side}/{v}": (leg, v) for leg in legs for v in versions}
    if not wanted.keys() - known.keys():
        return known
    config, run = config_of(seed, options), Run(directory=options.directory / f"{seed}-bench")
    if not run.directory.exists():
        shutil.copytree(taught.directory, run.directory)
    decoder, _, _ = load_checkpoint(taught.checkpoint("taught"))
    async with open_resources(config, run, Show(Console(quiet=True))) as resources:
        engine = EmbeddedEngine(decoder, version=0, slots=config.engine.slots, max_len=config.engine.context)
        site = await serve(create_app(engine, secret=resources.services.secret), "127.0.0.1", 0)
        resources.put_arm(Arm(name="bench", version=0, share=0.0, engines=(site.url,)))
        exam = Exam(
            runner=resources.runner(resources.client("bench", "bench")),
            tasks=held_out(config, run),
            seed=seed,
        )
        for number, (name, what) in enumerate(wanted.items()):
            if name in known:
                continue
            weights = dict(decoder.state_dict()) if what is None else what[0].weights(what[1])
            await engine.swap(number, weights)
            known[name] = await exam.sit(config.bench.at_once)
            print(f"seed {seed} {name}: {known[name]['solve']:.1%}", file=sys.stderr, flush=True)
            file.write_text(json.dumps(known, indent=1))
    await site.close()
    await engine.aclose()
    return known


def _figures(legs: Sequence[Leg], solved: Sequence[Row], options: argparse.Namespace) -> Row:
    rows = [_row(leg, solved[options.seeds.index(leg.seed)], options) for leg in legs]
    curves = {(row["seed"], row["tier"], row["side"]): row for row in rows}

    def ratios(tier: str, what: str) -> Row:
        return {target: _ratio(curves, tier, what, target, options.seeds) for target in options.targets}

    return {
        "peer": "trl",
        "targets": options.targets,
        "ratio_wall": ratios("a", "wall_s"),
        "ratio_cpu": ratios("a", "cpu_s"),
        "sessions_ratio_b": ratios("b", "sessions"),
        "apart_b": {str(seed): _apart(legs, seed, options) for seed in options.seeds if "b" in options.tiers},
        "solve": dict(zip(map(str, options.seeds), solved, strict=True)),
        "legs": rows,
    }


def _row(leg: Leg, solved: Row, options: argparse.Namespace) -> Row:
    """Return what a leg spent: until each kept version, and for each version once it was under way."""
    told = json.loads(leg.result.read_text())
    marks = {mark["version"]: mark for mark in told["marks"]}
    config = config_of(leg.seed, options)
    batch = config.refine.groups * config.practice.group_size
    versions = kept(options)
    first, last = marks[1], marks[options.versions]
    steps = options.versions - 1
    return {
        "seed": leg.seed,
        "tier": leg.tier,
        "side": leg.side,
        "start": told["start"],
        "sessions_sampled": told["sessions"],
        "wall_s": [marks[v]["wall_s"] for v in versions],
        "cpu_s": [marks[v]["cpu_s"] for v in versions],
        "sessions": [batch * v for v in versions],
        "solved": [solved[f"{leg.tier}/{leg.side}/{v}"]["solve"] for v in versions],
        "taught": solved["taught"]["solve"],
        "a_version": {
            name: (last[name] - first[name]) / steps if steps else None for name in ("wall_s", "cpu_s")
        },
        "spent": last.get("spent") or told.get("roles"),
    }


def _apart(legs: Sequence[Leg], seed: int, options: argparse.Namespace) -> list[float]:
    """Return how far the two sides' weights are from each other, as a share of our way from the taught ones.

    One number for each kept version of tier B. Equal steps on equal sessions leave only rounding.
    """
    ours, theirs = (
        next(leg for leg in legs if (leg.seed, leg.tier, leg.side) == (seed, "b", side)) for side in SIDES
    )
    taught = ours.weights(0)
    return [
        _distance(ours.weights(v), theirs.weights(v)) / _distance(ours.weights(v), taught)
        for v in kept(options)
    ]


def _distance(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(((some[name] - others[name]) ** 2).sum()) for name in some))


def _ratio(
    rows: Mapping[tuple[int, str, str], Row], tier: str, what: str, target: str, seeds: Sequence[int]
) -> Row | None:
    """Return TRL's spending over ours until the target, as a median over seeds."""
    found: list[Ratio] = []
    for seed in seeds:
        if (seed, tier, "trl") in rows:
            ours, theirs = (rows[seed, tier, side] for side in SIDES)
            rate = float(target) / 100 + (ours["taught"] if target.startswith("+") else 0.0)
            each = ratio(_curve(theirs, what), _curve(ours, what), rate)
            found += [each] if each is not None else []
    middle = median(found)
    return None if middle is None else _finite(middle)


def _curve(row: Row, what: str) -> Curve:
    return Curve(spent=(0.0, *row[what]), solved=(row["taught"], *row["solved"]))


def _finite(middle: Median) -> Row:
    """Return the median as JSON has it: a bound without an end is null."""
    return {name: None if value == math.inf else value for name, value in asdict(middle).items()}


def _show(figures: Row) -> None:
    header = ["leg", "start s", "wall s a version", "CPU s a version", "taught", "measured"]
    rows = []
    for leg in figures["legs"]:
        name = f"{leg['seed']} {leg['tier']} {leg['side']}"
        rates = " ".join(f"{rate:.0%}" for rate in leg["solved"])
        cells = [f"{leg['start']['wall_s']:.0f}"]
        cells += [f"{leg['a_version'][what] or 0:.1f}" for what in ("wall_s", "cpu_s")]
        rows.append([name, *cells, f"{leg['taught']:.1%}", rates])
    table(header, rows)
    for seed, apart in figures["apart_b"].items():
        print(f"weights apart in b, seed {seed}: " + " ".join(f"{each:.1e}" for each in apart))
    for name in ("ratio_wall", "ratio_cpu", "sessions_ratio_b"):
        for target, each in figures[name].items():
            print(f"{name} at {target}: {each or 'not known'}")
