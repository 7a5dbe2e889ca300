"""Random schedules of everything that may happen to a chain of weights: is a wrong tensor ever served?

`fuzz/weights_chain.py` says what a schedule is and what is counted.

`python -m benchmarks.chain_fuzz --schedules 10000 --json`
"""

import argparse
import logging
import sys
from collections import Counter
from multiprocessing import get_context

import torch
from fuzz.weights_chain import run_schedule

from benchmarks.measure import Run, table


def main() -> int:
    options = _parse()
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


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chain_fuzz", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
