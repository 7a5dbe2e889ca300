"""The verdicts on edits against an exact reference, on random histories of real sources.

    python -m benchmarks.survival [--histories 240] [--first 0] [--json]

`fuzz/edit_survival.py` says what a history is. A history ends at its first disagreement. The last line of
output is JSON with `histories, disagreements, comparisons, skipped_steps, cpu_seconds`.
"""

import argparse
import json
import os
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzz.edit_survival import Disagreement, run_history


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--histories", type=int, default=240)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    os.environ["GIT_CONFIG_GLOBAL"] = os.environ["GIT_CONFIG_SYSTEM"] = os.devnull
    comparisons = skipped = 0
    wrong: list[Disagreement] = []
    for seed in range(options.first, options.first + options.histories):
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_history(seed, Path(folder).resolve())
        comparisons, skipped = comparisons + outcome.comparisons, skipped + outcome.skipped
        if outcome.disagreement:
            wrong.append(outcome.disagreement)
            print(outcome.disagreement, flush=True)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "histories": options.histories,
        "disagreements": len(wrong),
        "comparisons": comparisons,
        "skipped_steps": skipped,
        "cpu_seconds": round(sum(each.ru_utime + each.ru_stime for each in used), 1),
    }
    print(json.dumps(figures) if options.json else "\n".join(f"{k:<16} {v}" for k, v in figures.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
