"""Random shell commands, judged by the policy and run by real shells in a jail: does anything run unjudged?

    python -m benchmarks.shell_fuzz --commands 100000 --json

`fuzz/shell.py` compares, `fuzz/shell_grammar.py` makes the commands, `fuzz/shell_jail.py` runs them.
`unjudged` counts runs of a program, or written files, that were not among what the policy had judged.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from fuzz.shell import Tally, shrunk, try_one
from fuzz.shell_grammar import Grammar
from fuzz.shell_jail import SHELLS, jailed


def _batch(job: tuple[int, int]) -> Tally:
    seed, count = job
    os.nice(10)
    tally = Tally()
    grammar = Grammar(seed)
    with tempfile.TemporaryDirectory(prefix="ostinato-fuzz-") as folder, jailed(Path(folder)) as jail:
        for _ in range(count):
            tally.add(try_one(grammar.command(), jail))
        tally.unjudged = [
            (shell, shrunk(command, jail), what) for shell, command, what in tally.unjudged[:20]
        ]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    tally.counts["cpu_ms"] = round(1000 * sum(each.ru_utime + each.ru_stime for each in used))
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shell_fuzz", description=__doc__)
    parser.add_argument("--commands", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object, last line of the output")
    options = parser.parse_args()
    started, total, size = time.monotonic(), Tally(), 500
    whole, rest = divmod(options.commands, size)
    jobs = [(options.seed * 1_000_003 + at, size) for at in range(whole)] + [
        (options.seed * 1_000_003 + whole, rest)
    ] * bool(rest)
    with get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        for done, tally in enumerate(pool.imap_unordered(_batch, jobs), 1):
            total.add(tally)
            print(f"{done}/{len(jobs)} batches, {len(total.unjudged)} unjudged", file=sys.stderr, flush=True)
    for shell, command, what in total.unjudged[:50]:
        print(f"{shell}: {command!r} {what}")
    counts = {name: total.counts[name] for name in ("commands", "allowed", "allowed_by_default")}
    each = {
        shell: {what: total.counts[f"{shell}_{what}"] for what in ("runs", "programs", "files", "stopped")}
        for shell in SHELLS
    }
    for shell, figures in each.items():
        figures["unjudged"] = sum(name == shell for name, _, _ in total.unjudged)
    seconds = {"seconds": round(time.monotonic() - started, 1), "cpu_seconds": total.counts["cpu_ms"] / 1000}
    row = {**counts, "unjudged": len(total.unjudged), **seconds, "shells": each}
    print(json.dumps(row) if options.json else "\n".join(f"{name}: {value}" for name, value in row.items()))
    return int(bool(total.unjudged))


if __name__ == "__main__":
    sys.exit(main())
