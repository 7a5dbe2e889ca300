"""The legs of `benchmarks.learning --peer trl`: one side of one tier practises, and its spending is noted."""

import argparse
import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor

from benchmarks.measure import Cpu, children_of
from ostinato.config import dump, load
from ostinato.demo.commands import DEMO
from ostinato.loop.config import RunConfig, check
from ostinato.loop.resources import open_resources
from ostinato.loop.run import Run
from ostinato.loop.show import Show
from ostinato.loop.stages.practise import practise
from ostinato.loop.stages.problems import stream
from ostinato.model.tensor_files import TensorFiles
from ostinato.rollout.config import SYNCHRONOUS
from ostinato.store import Ledger, Objects, Stage
from ostinato.sync import Subscriber
from ostinato.types import Source

LOOK_S = 0.2
"""Seconds between two looks at what a side has done."""
ROOT = Path(__file__).parents[1]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One side of one tier from one taught checkpoint, in a folder of its own."""

    seed: int
    tier: str
    side: str
    folder: Path

    @property
    def run(self) -> Run:
        return Run(directory=self.folder / "run")

    @property
    def result(self) -> Path:
        return self.folder / "leg.json"

    def weights(self, version: int) -> Mapping[str, Tensor]:
        """Return the weights of a kept version."""
        if self.side == "ours":
            return Subscriber(Objects.open(str(self.run.objects_path))).fetch(version)
        files = TensorFiles.open(self.folder / str(version))
        return {name: files.tensor(name) for name in files.entries}


class Progress:
    """The wall and CPU time that a side has spent when each line of a JSON-lines file is there."""

    def __init__(self, path: Path, cpu: Cpu) -> None:
        self._path, self._cpu = path, cpu
        self._start = time.time(), cpu.seconds()
        self._looks: list[tuple[float, float]] = [self._start]
        self.marks: list[Row] = []

    async def follow(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        now = time.time(), self._cpu.seconds()
        self._looks.append(now)
        lines = self._path.read_text().split("\n")[:-1] if self._path.exists() else []
        for line in lines[len(self.marks) :]:
            self.marks.append({**json.loads(line), "at": now[0], "cpu_at": now[1]})

    def since(self, began: float) -> Row:
        """Return the start and the marks in seconds since `began`, in seconds since the epoch."""
        cpu = next(cpu for at, cpu in reversed(self._looks) if at <= began)
        marks = [
            mark | {"wall_s": max(0.0, mark["at"] - began), "cpu_s": max(0.0, mark["cpu_at"] - cpu)}
            for mark in self.marks
        ]
        start = {"wall_s": began - self._start[0], "cpu_s": cpu - self._start[1]}
        return {"start": start, "marks": marks}


def kept(options: argparse.Namespace) -> list[int]:
    """Return the versions that are measured."""
    return list(range(options.every, options.versions + 1, options.every))


def config_of(seed: int, options: argparse.Namespace) -> RunConfig:
    """Return the settings of both sides: the demo's, dense, on K1 alone, and without pardon for bad calls."""
    settings = [
        f"seed={seed}",
        "model.shape.experts=0",
        "tasks.sources={pebbles = {kinds = {fix = 1.0}}}",
        f"tasks.held_out={{seeds = {options.tasks}}}",
        "harness.max_broken=0",
        f"refine.versions={options.versions}",
        'schedule.stages=["teach"]',
        *options.set,
    ]
    config = load(RunConfig, DEMO, settings)
    check(config)
    return config


def _of_tier(config: RunConfig, tier: str) -> RunConfig:
    """Return our settings in a tier: in B each version is trained on sessions of the one before it."""
    if tier == "a":
        return config
    policy = replace(config.refine.policy, baseline="group")
    return replace(
        config,
        practice=replace(config.practice, mode=SYNCHRONOUS),
        refine=replace(config.refine, staleness=0, policy=policy),
    )


async def practise_leg(leg: Leg, taught: Run, options: argparse.Namespace, cpu: Cpu) -> None:
    """Let one side practise in a copy of the taught run, and keep what it spent."""
    shutil.rmtree(leg.folder, ignore_errors=True)
    shutil.copytree(taught.directory, leg.run.directory, ignore=shutil.ignore_patterns("store.db*"))
    with (
        closing(sqlite3.connect(taught.store_path)) as record,
        closing(sqlite3.connect(leg.run.store_path)) as copy,
    ):
        record.backup(copy)  # whole, whoever else has the file open
    config = _of_tier(config_of(leg.seed, options), leg.tier)
    leg.run.config.write_text(dump(config))
    work = _ours(leg, config, cpu) if leg.side == "ours" else _peer(leg, config, taught, options, cpu)
    result = await work
    leg.result.write_text(json.dumps(result, indent=1))


async def _ours(leg: Leg, config: RunConfig, cpu: Cpu) -> Row:
    progress = Progress(leg.run.directory / "learner-practice" / "learner.jsonl", cpu)
    following = asyncio.create_task(progress.follow())
    roles = asyncio.create_task(_roles())
    async with open_resources(config, leg.run, Show(Console(stderr=True))) as resources:
        practised = await practise(resources)
        progress.look()
        began = min(each.started_at for each in resources.store.sessions(source=Source.PRACTICE))
    following.cancel()
    roles.cancel()
    await asyncio.gather(following, return_exceptions=True)
    spent = (await asyncio.gather(roles, return_exceptions=True))[0]
    return progress.since(began) | {"sessions": practised.sessions, "roles": spent}


async def _roles() -> dict[str, float]:
    """Return the CPU seconds of each module that a child of this process runs, once it is cancelled."""
    spent: dict[str, float] = {}
    try:
        while True:
            spent |= _children()
            await asyncio.sleep(LOOK_S)
    except asyncio.CancelledError:
        return spent


def _children() -> dict[str, float]:
    """Return the CPU seconds so far of the modules that children of this process run now.

    Only children are looked at: reading all of `/proc` so often cost more than half of practice itself.
    """
    found = {}
    for pid in children_of(os.getpid()):
        process = Path("/proc", str(pid))
        try:
            status = (process / "stat").read_text().rpartition(")")[2].split()
            words = (process / "cmdline").read_text().split("\0")
        except OSError:  # it ended meanwhile
            continue
        if "-m" in words:
            ticks = int(status[11]) + int(status[12])
            found[words[words.index("-m") + 1]] = ticks / os.sysconf("SC_CLK_TCK")
    return found


async def _peer(leg: Leg, config: RunConfig, taught: Run, options: argparse.Namespace, cpu: Cpu) -> Row:
    settings = {
        "tier": leg.tier,
        "run": str(leg.run.directory.resolve()),
        "checkpoint": str(taught.checkpoint("taught").resolve()),
        "tasks": _tasks(leg, config),
        "keep": kept(options),
        "out": str(leg.folder.resolve()),
        "threads": options.peer_threads,
        "continuous": options.peer_continuous,
    }
    file = leg.folder / "settings.json"
    file.write_text(json.dumps(settings))
    threads = str(options.peer_threads)
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{_packages(options.peer_python)}",
        "OMP_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    progress = Progress(leg.folder / "marks.jsonl", cpu)
    following = asyncio.create_task(progress.follow())
    with (leg.folder / "worker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.trl_practice_worker", str(file)),
            stdout=log,
            stderr=log,
            env=environment,
            cwd=ROOT,
        )
        status = await process.wait()
    following.cancel()
    progress.look()
    if status:
        tail = (leg.folder / "worker.log").read_text(errors="replace")[-2000:]
        raise SystemExit(f"TRL ended with {status}; the end of its log:\n{tail}")
    return progress.since(progress.marks[0]["at"]) | {"sessions": progress.marks[-1]["sessions"]}


def _packages(python: str) -> str:
    """Return the folder of an interpreter's packages.

    TRL runs under our interpreter, with these packages beside ours: a sandbox runs the interpreter of the
    process that opens it, and in one that is not mounted there the tests of a task would not start.
    """
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _tasks(leg: Leg, config: RunConfig) -> list[str]:
    """Return the folders of the tasks that our own side practises on, in its order."""
    ledger, tasks = Ledger(leg.run.open_store()), list[str]()
    for problem in stream(config, "practice"):
        if ledger.reserve(problem.key, Stage.PRACTICE):
            tasks.append(str(problem.provide(leg.run.tasks / "practice").directory.resolve()))
        if len(tasks) == config.refine.groups * (config.refine.versions or 0):
            return tasks
    raise AssertionError("unreachable: the stream does not end")
