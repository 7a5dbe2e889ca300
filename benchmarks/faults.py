"""What practice loses when its processes die: random schedules of the record, and real kills of a real run.

Schedules: `fuzz/ledger.py` lets the reconciler, the ledger, a learner and people die anywhere, and
`fuzz/repeat.py` compares a synchronous run that dies with the same run left alone. Kills: a synchronous run
of real processes with a small random model is killed at random times (`kill -9`), one process of a random
kind after another: engine, trainer, gateway, sampler, the run itself, and the verification in its
sandbox. Three kills in four wait until the run has come further since the last one, so that a slow machine
sees no fewer of its moments. A run that ended by a kill, or gave up a process that died too often, is started
again. Every run is compared with one that nobody killed.

- *trained_twice*, *lost* (as `fuzz/ledger.py` counts them; of real runs, turns without a state, prompts and
  slots without an end, ended sessions that were sampled again) and *hangs* (runs without a new row for
  `--patience` seconds) must be 0;
- *roots_equal* says whether every killed run, real or scheduled, ended in the root of its twin.

`python -m benchmarks.faults --json`
"""

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import torch
from fuzz.ledger import run_schedule
from fuzz.practice import SHAPE, defects
from fuzz.repeat import run_repeat
from sqlalchemy import func, select

from benchmarks.measure import Run, table
from ostinato.store import Ledger, Store
from ostinato.store.config import has_record, record_of
from ostinato.store.sql.schema import slots, trainings, turns

PROGRESS = 0.75
"""The share of kills that wait for progress since the last kill; the others hit processes that start."""
SANDBOX_S = 5.0
"""The longest wait for a process of a sandbox."""
MODULES = {
    "engine": "ostinato.engine.server",
    "gateway": "ostinato.gateway.server",
    "sampler": "ostinato.loop.stages.sampler",
    "trainer": "ostinato.train.learner",
}
KINDS = (*MODULES, "conductor", "sandbox")
SETTINGS = f"""
[sandbox]
backend = "process"

[engine]
slots = 24
context = 512
{SHAPE}
[practice]
mode = "synchronous"
group_size = 4

[refine]
versions = 4
groups = 2

[schedule]
stages = ["practice"]
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--schedules", type=int, default=9_000)
    parser.add_argument("--repeats", type=int, default=1_000, help="scheduled runs beside their twins")
    parser.add_argument("--kills", type=int, default=200, help="kills of real processes")
    parser.add_argument("--every", type=float, default=3.0, help="mean seconds between two kills")
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    with Run("faults", "sqlalchemy", "torch") as run, tempfile.TemporaryDirectory() as folder:
        total += _schedules(options, Path(folder))
        total += Real(Path(folder), options).run()
        rows = sorted(total)
        table(["what", "count"], [[what, f"{total[what]:,}"] for what in rows])
        lost = total["lost"] + total["unended"] + total["stale"]
        figures = {
            "kills": total["real_kills"],
            "scheduled_kills": total["kills"] + total["power_cuts"],
            "schedules": total["schedules"],
            "repeats": total["repeats"],
            "runs": total["runs"],
            "trained_twice": total["trained_twice"],
            "lost": lost,
            "hangs": total["hangs"],
            "roots_equal": total["roots_differ"] == 0 and total["repeats"] + total["runs"] > 0,
            "happened": dict(sorted(total.items())),
        }
        run.finish(figures, as_json=options.json)
    return int(bool(total["trained_twice"] or lost or total["hangs"] or total["roots_differ"]))


def _schedules(options: argparse.Namespace, folder: Path) -> Counter[str]:
    memory = Path("/dev/shm")
    work = [("ledger", options.seed + i) for i in range(options.schedules)]
    work += [("repeat", options.seed + i) for i in range(options.repeats)]
    total: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else folder) as own,
        get_context("forkserver").Pool(options.processes, _begin, (own,)) as pool,
    ):
        for counts in pool.imap_unordered(_one, work, chunksize=5):
            total += counts
    return total


_folder = ""


def _begin(folder: str) -> None:
    global _folder  # noqa: PLW0603
    _folder = tempfile.mkdtemp(dir=folder)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)


def _one(work: tuple[str, int]) -> Counter[str]:
    what, seed = work
    try:
        return (run_schedule if what == "ledger" else run_repeat)(seed, Path(_folder))
    except BaseException as error:
        raise RuntimeError(f"{what} {seed}: {error!r}") from error


class Real:
    """Runs of real processes: one that is left alone, and others that are killed until there are enough."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._kills = options.kills
        self._patience = options.patience
        self._every = options.every
        self._chance = random.Random(options.seed)
        self.counts: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        if not self._kills:
            return self.counts
        start = self._start()
        expected = self._practise(start, "whole", killing=False)
        while self.counts["real_kills"] < self._kills:
            self.counts["runs"] += 1
            root = self._practise(start, f"killed-{self.counts['runs']}", killing=True)
            self.counts["roots_differ"] += root != expected
            print(f"run {self.counts['runs']}: {dict(self.counts)}", file=sys.stderr, flush=True)
        return self.counts

    def _start(self) -> Path:
        """Make the checkpoint that every run begins with, by a run that ends when it lies there."""
        directory, made = self._folder / "start", self._folder / "start" / "checkpoints" / "start"
        settings = SETTINGS.replace('["practice"]', '["teach"]')
        process = self._command(directory, settings)
        while not (made / "model.safetensors").exists() or not (directory / "logs").exists():
            assert process.poll() is None, "the first run ended too early"
            time.sleep(0.2)
        process.terminate()
        process.wait()
        return made

    def _command(self, directory: Path, settings: str) -> "subprocess.Popen[bytes]":
        file = self._folder / f"{directory.name}.toml"
        file.write_text(settings)
        command = [sys.executable, "-m", "ostinato", "run", str(file), "--directory", str(directory)]
        with (self._folder / f"{directory.name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _settings(self, start: Path) -> str:
        """Return the file of a run that begins with the checkpoint."""
        model = f'\n[model]\npath = "{start}"\n'
        head, tail = SETTINGS.partition("[model.shape]")[0], SETTINGS.partition("[practice]")[2]
        return f"{head}{model}[practice]{tail}"

    def _practise(self, start: Path, name: str, *, killing: bool) -> str:
        """Run practice to its end, again and again while kills end it; return the state root."""
        directory, settings = self._folder / name, self._settings(start)
        rows, since = -1, time.monotonic()
        hit, waits = -1, False
        process = self._command(directory, settings)
        while process.poll() != 0:
            if process.returncode is not None:
                self.counts["restarts"] += 1
                wait_for_orphans(directory)
                process = self._command(directory, settings)
            time.sleep(self._chance.uniform(0.1, 1.9) * self._every if killing else 0.5)
            if (now := self._rows(directory)) != rows:
                rows, since = now, time.monotonic()
            if killing and not (waits and rows == hit):
                self._kill(process)
                hit, waits = rows, self._chance.random() < PROGRESS
            if time.monotonic() - since > self._patience:
                self.counts["hangs"] += 1
                process.kill()
                process.wait()
                return "hung"
        return self._verdict(directory)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        kind = self._chance.choice(KINDS)
        if kind == "conductor":
            victims = [process.pid] if process.poll() is None else []
        elif kind == "sandbox":
            victims, until = [], time.monotonic() + SANDBOX_S
            while not victims and time.monotonic() < until:
                victims = descendants(process.pid, lambda words: any("sandbox" in word for word in words))
        else:
            victims = descendants(process.pid, lambda words: MODULES[kind] in words)
        for pid in victims[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.counts["real_kills"] += 1
                self.counts[f"killed {kind}"] += 1

    def _rows(self, directory: Path) -> int:
        """Return how many transitions and turns there are; -1 before there is a store."""
        return count_rows(directory)

    def _verdict(self, directory: Path) -> str:
        store = Store.open(record_of(directory))
        ledger, wrong = Ledger(store), defects(store)
        self.counts["trained_twice"] += ledger.trained_twice()
        self.counts["unended"] += ledger.unended() + ledger.unaccounted() + wrong["open"]
        self.counts["lost"] += wrong["redone"] + wrong["illegal"]
        store.close()
        root: str = json.loads((directory / "report.json").read_text())["practice"]["root"]
        return root


def count_rows(directory: Path) -> int:
    """Return how many transitions and turns there are; -1 before there is a store."""
    if not (directory / "config.toml").exists() or not has_record(directory):
        return -1
    store = Store.open(record_of(directory))
    try:
        with store.database.read() as connection:
            tables = (slots, turns, trainings)
            return sum(connection.scalar(select(func.count()).select_from(each)) or 0 for each in tables)
    finally:
        store.close()


def descendants(pid: int, wanted: Callable[[list[str]], bool]) -> list[int]:
    """Return the processes below `pid` whose command line is `wanted`."""
    parents: dict[int, tuple[int, list[str]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                parents[int(entry.name)] = (int(fields[1]), words)
    found, level = [], {pid}
    while level := {child for child, (parent, _) in parents.items() if parent in level}:
        found += [child for child in sorted(level) if wanted(parents[child][1])]
    return found


def wait_for_orphans(directory: Path) -> None:
    """Wait until the services of a killed run, which end with it, have let go of its folder."""
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        words = (entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit())
        left = False
        for path in words:
            with contextlib.suppress(OSError):
                left = left or str(directory / "processes.toml").encode() in path.read_bytes()
        if not left:
            return
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
