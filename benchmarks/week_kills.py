"""Kills of small weeks: at a durable step of the process, and by SIGKILL at any moment.

For SIGKILL a process runs for a random time, forked from one that has imported everything and runs nothing.
Another one goes on until the week is over; then its record is compared with that of a week without kills.
"""

import multiprocessing
import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from fuzz.cycle_kills import (
    LEDGER,
    SMALL_WEEK,
    SUPERSEDING_WEEK,
    TINY_WEEK,
    Survived,
    ledger,
    survive,
    twin_of,
)

from ostinato_lab.week.week import WeekPlan, run_week

KILLS_EACH, KILLED_EACH = 250, 10
"""The kills of one part, about; a week that is under way is finished."""
TINY_SEEDS = (2, 8, 12)
"""Seeds of tiny weeks in which a candidate meets people."""
LONGEST_S = 3.0


def fuzzed(folder: Path, seed: int, kills: int) -> dict[str, Any]:
    """Return the figures of tiny weeks that died at durable steps, until that many kills."""
    tiny = [replace(TINY_WEEK, seed=each) for each in TINY_SEEDS]
    plan, done = [*tiny, SUPERSEDING_WEEK][seed % (1 + len(TINY_SEEDS))], list[Survived]()
    shutil.rmtree(folder, ignore_errors=True)
    twin = twin_of(folder, plan)
    while sum(each.kills for each in done) < kills:
        done.append(survive(folder / "killed", twin, seed * 1000 + len(done)))
    shutil.rmtree(folder)
    died_in = sum((Counter(each.died_in) for each in done), Counter[str]())
    return {
        "kills": sum(each.kills for each in done),
        "weeks": len(done),
        "different": sum(bool(each.differs) for each in done),
        "tables": sorted({table for each in done for table in each.differs}),
        "died_in": dict(died_in),
        "releases": len(twin.ledger["releases"]),
    }


def killed(folder: Path, seed: int, kills: int) -> dict[str, Any]:
    """Return the figures of weeks whose processes were killed by SIGKILL, until that many kills."""
    plan, chance, count, weeks, different = replace(SMALL_WEEK, seed=1 + seed % 2), Random(seed), 0, 0, 0
    shutil.rmtree(folder, ignore_errors=True)
    twin = twin_of(folder, plan).ledger
    tables = set[str]()
    while count < kills:
        shutil.rmtree(folder / "killed", ignore_errors=True)
        while _dies(folder / "killed", plan, chance.uniform(0.1, LONGEST_S)):
            count += 1
        mine = ledger(folder / "killed")
        differs = {name for name in LEDGER if mine[name] != twin[name]}
        weeks, different, tables = weeks + 1, different + bool(differs), tables | differs
    return {"kills": count, "weeks": weeks, "different": different, "tables": sorted(tables)}


def _dies(folder: Path, plan: WeekPlan, after_s: float) -> bool:
    """Run the week in a process of its own for so many seconds of its CPU; return whether it was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "fuzz.cycle_kills"])
    child = context.Process(target=run_until, args=(folder, plan, after_s))
    child.start()
    child.join()
    if child.exitcode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the week in {folder} ended by itself: {child.exitcode}")
    return child.exitcode != 0


def run_until(folder: Path, plan: WeekPlan, after_s: float) -> None:
    """Run the week, and kill this process after so many seconds of its CPU."""
    signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    signal.setitimer(signal.ITIMER_PROF, after_s)
    run_week(folder, plan)
