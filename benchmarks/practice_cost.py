"""The CPU seconds of practice, by process: where a session's cost goes, with the work that was done for it.

    python -m benchmarks.practice_cost --taught RUN [--versions 4] [--synchronous] [--json]

`--taught` names a run folder whose stage `teach` is done, such as `1-taught` of `benchmarks.learning --peer
trl`. Practice begins from a copy of it with the settings of that benchmark. What processes spend before the
first session, and after the last version, is left out. `/proc` is read while they run: `user` and `system`
are seconds of a process; `sandboxes and judges` is what the sampler's zygote waited for, so that they count
once they have ended. `other` is this process, and what the kernel charged to nobody above. `void` counts
attempts that a failure of ours spoilt, `changes` the pairs of a task and a change that were judged.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from sqlalchemy import func, select

from benchmarks.learning_legs import config_of
from benchmarks.measure import Run as Measured
from benchmarks.measure import children_of, table
from ostinato.config import dump
from ostinato.loop.resources import open_resources
from ostinato.loop.run import Run
from ostinato.loop.show import Show
from ostinato.loop.stages.practise import practise
from ostinato.rollout.config import SYNCHRONOUS
from ostinato.store import Store
from ostinato.store.ledger.slots import Slots
from ostinato.store.sql.schema import signals, turns
from ostinato.types import SignalKind, Source

LOOK_S = 0.5
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLER = "ostinato.loop.stages.sampler"
Row = dict[str, Any]
Seconds = tuple[float, float]
"""User and system seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.practice_cost", description=__doc__)
    parser.add_argument("--taught", type=Path, required=True)
    parser.add_argument("--versions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synchronous", action="store_true")
    parser.add_argument("--directory", type=Path, help="a new folder that keeps the run")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the run"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.tasks = 8  # held-out tasks, of which none is used
    torch.set_num_threads(1)
    with Measured("practice_cost", "torch") as run, tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_practise(options.directory or Path(folder) / "run", options, run))
        sessions, spent = figures["sessions"], figures["spent"]
        rows = [[role, *(f"{each:.2f}" for each in spent[role])] for role in spent]
        rows = [[*row, f"{1000 * sum(spent[row[0]]) / sessions:.1f}"] for row in rows]
        table(["process", "user s", "system s", "ms a session"], rows)
        shown = ("sessions", "changes", "void", "turns", "practice_s", "session_s")
        print(", ".join(f"{name} {figures[name]:,.3f}" for name in shown))
        run.finish(figures, as_json=options.json)
    return 0


async def _practise(folder: Path, options: argparse.Namespace, run: Measured) -> Row:
    shutil.copytree(options.taught, folder)
    config = config_of(options.seed, options)
    if options.synchronous:
        practice = replace(config.practice, mode=SYNCHRONOUS)
        config = replace(config, practice=practice, refine=replace(config.refine, staleness=0))
    own = Run(directory=folder)
    own.config.write_text(dump(config))
    looks: list[Row] = []
    looking = asyncio.create_task(_look(run, looks))
    async with open_resources(config, own, Show(Console(stderr=True))) as resources:
        result = await practise(resources)
        looking.cancel()
        figures = _counts(resources.store)
    first = next(look for look in reversed(looks) if look["at"] <= figures["began"])
    spent = {role: _minus(seconds, first["spent"].get(role)) for role, seconds in _last(looks).items()}
    total = looks[-1]["cpu"] - first["cpu"]
    spent["other"] = total - sum(map(sum, spent.values())), 0.0
    wall_s = looks[-1]["at"] - first["at"]
    per_session = total / figures["sessions"]
    return {
        **figures,
        "practice_s": total,
        "session_s": per_session,
        "wall_s": wall_s,
        "root": result.root,
        "spent": spent,
    }


def _counts(store: Store) -> Row:
    """Return when the first session began, and what was done; a session counts once it was judged."""
    sessions = store.sessions(source=Source.PRACTICE)
    task_of = {session.id: session.task_id for session in sessions}
    query = select(func.count()).where(turns.c.session_id.in_(list(task_of)))
    patches = select(signals.c.session_id, signals.c.text).where(
        signals.c.kind == SignalKind.PATCH.value, signals.c.session_id.in_(list(task_of))
    )
    with store.database.read() as connection:
        counted = connection.scalar(query)
        judged = [(task_of[id_], text) for id_, text in connection.execute(patches)]
    return {
        "began": min(session.started_at for session in sessions),
        "sessions": len(judged),
        "changes": len(set(judged)),
        "turns": counted,
        "void": sum(Slots(store).reasons().values()),
    }


async def _look(run: Measured, looks: list[Row]) -> None:
    while True:
        looks.append({"at": time.time(), "cpu": run.cpu.seconds(), "spent": _processes()})
        await asyncio.sleep(LOOK_S)


def _last(looks: Sequence[Row]) -> dict[str, Seconds]:
    """Return the last that was seen of each role, some of which end before the others."""
    return {role: seconds for look in looks for role, seconds in look["spent"].items()}


def _minus(now: Seconds, before: Seconds | None) -> Seconds:
    user, system = before or (0.0, 0.0)
    return now[0] - user, now[1] - system


def _processes() -> dict[str, Seconds]:
    """Return what the services of this process have spent so far, by role.

    Only processes below this one are looked at: to read all of `/proc` took 20 ms of CPU time a look.
    """
    spent: dict[str, Seconds] = {}
    for pid in children_of(os.getpid()):
        words = _words(pid)
        if "-m" not in words:
            continue
        role = words[words.index("-m") + 1]
        spent[role.removeprefix("ostinato.")] = _ticks(pid)[0]
        if role == SAMPLER:
            for zygote in [inner for outer in children_of(pid) for inner in children_of(outer)]:
                spent["zygote"], spent["sandboxes and judges"] = _ticks(zygote)
    return spent


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _ticks(pid: int) -> tuple[Seconds, Seconds]:
    """Return the seconds of a process itself, and those of the children that it waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return (0.0, 0.0), (0.0, 0.0)
    own, others = fields[11:13], fields[13:15]
    return (int(own[0]) / TICKS, int(own[1]) / TICKS), (int(others[0]) / TICKS, int(others[1]) / TICKS)


if __name__ == "__main__":
    raise SystemExit(main())
