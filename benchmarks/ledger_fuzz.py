"""Random schedules of everything that may happen to a prompt: is one trained twice, lost or left open?

`fuzz/ledger.py` says what a schedule is and what is counted; every count but those of events must be 0.

`python -m benchmarks.ledger_fuzz --schedules 10000 --json`
"""

import logging
import sys
import tempfile
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import torch
from fuzz.ledger import run_schedule

from benchmarks.measure import Run, schedule_options, table

VERDICT = ("schedules", "trained_twice", "lost", "unended", "stale", "power_cuts", "kills")


def main() -> int:
    options = schedule_options("ledger_fuzz", __doc__)
    seeds = range(options.seed, options.seed + options.schedules)
    memory = Path("/dev/shm")
    total: Counter[str] = Counter()
    with (
        Run("ledger_fuzz", "sqlalchemy", "torch") as run,
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        get_context("forkserver").Pool(options.processes, _begin, (folder,)) as pool,
    ):
        for counts in pool.imap_unordered(_run_quietly, seeds, chunksize=20):
            total += counts
        rows = [*VERDICT, *sorted(total.keys() - {*VERDICT})]
        table(["what", "count"], [[what, f"{total[what]:,}"] for what in rows])
        cpu_seconds = round(run.cpu.seconds(), 1)
        run.finish(
            {what: total[what] for what in VERDICT}
            | {"cpu_seconds": cpu_seconds, "happened": dict(sorted(total.items()))},
            as_json=options.json,
        )
    return int(any(total[what] for what in ("trained_twice", "lost", "unended", "stale")))


_folder = ""


def _begin(folder: str) -> None:
    global _folder  # noqa: PLW0603
    _folder = tempfile.mkdtemp(dir=folder)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)


def _run_quietly(seed: int) -> Counter[str]:
    try:
        return run_schedule(seed, Path(_folder))
    except BaseException as error:
        raise RuntimeError(f"schedule {seed}: {error!r}") from error


if __name__ == "__main__":
    sys.exit(main())
