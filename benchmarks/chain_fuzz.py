"""Random schedules of everything that may happen to a chain of weights: is a wrong tensor ever served?

`fuzz/weights_chain.py` says what a schedule is and what is counted.

`python -m benchmarks.chain_fuzz --schedules 10000 --json`
"""

import logging
import sys
from collections import Counter
from multiprocessing import get_context

import torch
from fuzz.weights_chain import run_schedule

from benchmarks.measure import Run, schedule_options, table


def main() -> int:
    options = schedule_options("chain_fuzz", __doc__)
    seeds = range(options.seed, options.seed + options.schedules)
    total: Counter[str] = Counter()
    with (
        Run("chain_fuzz", "obstore", "torch") as run,
        get_context("forkserver").Pool(options.processes) as pool,
    ):
        for counts in pool.imap_unordered(_run_quietly, seeds, chunksize=20):
            total += counts
        verdict = ("schedules", "digest_mismatches_served", "acknowledged_lost", "readers_stuck")
        table(
            ["what", "count"],
            [[what, f"{total[what]:,}"] for what in (*verdict, *sorted(total.keys() - {*verdict}))],
        )
        figures = {what: total[what] for what in verdict}
        run.finish(
            {**figures, "happened": {str(k): n for k, n in sorted(total.items())}}, as_json=options.json
        )
    return int(any(total[what] for what in verdict[1:]))


def _run_quietly(seed: int) -> Counter[str]:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    try:
        return run_schedule(seed)
    except BaseException as error:
        raise RuntimeError(f"schedule {seed}: {error!r}") from error


if __name__ == "__main__":
    sys.exit(main())
