"""Floods of requests against the real servers: memory held, and latency of `/healthz` meanwhile.

    python -m benchmarks.floods [--scale 1.0] [--only NAME …] [--json]

`fuzz/floods.py` holds the floods and the measurement. For each flood the table lists the bytes sent, the peak
of resident memory above rest (`VmHWM`, reset before), the latency of `/healthz`, and the CPU time of the
server. The goal is at most 50 MB, and `/healthz` within 100 ms. Sender, server and prober share the machine,
so the latency is an upper bound.
"""

import argparse
import sys
from dataclasses import asdict

from fuzz.floods import FLOODS, MOST_MB, MOST_MS, Outcome, measure, servers

from benchmarks.measure import Run, table


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=[], help="names, or parts of them")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    chosen = {k: v for k, v in FLOODS.items() if not options.only or any(part in k for part in options.only)}
    outcomes: dict[str, Outcome] = {}
    for server in dict.fromkeys(flood.server for flood in chosen.values()):
        with servers([server]) as running:
            for name, flood in chosen.items():
                if flood.server == server:
                    path = "/health" if server == "sandbox" else "/healthz"
                    outcomes[name] = measure(flood, *running[server], options.scale, path)
                    print(name, outcomes[name], file=sys.stderr, flush=True)
    columns = {"sent_mb": 1, "held_mb": 1, "p50_ms": 1, "p99_ms": 1, "max_ms": 1, "n": 0, "failed": 0}
    columns["cpu_s"] = 2
    rows = [[name, *(f"{getattr(o, c):.{d}f}" for c, d in columns.items())] for name, o in outcomes.items()]
    table(["", *columns], rows)
    run.finish(
        {
            "goal": {"held_mb": MOST_MB, "max_ms": MOST_MS},
            "over": [k for k, o in outcomes.items() if o.held_mb > MOST_MB or o.max_ms > MOST_MS or o.failed],
            "n": sum(o.n for o in outcomes.values()),
            "rows": {name: asdict(outcome) for name, outcome in outcomes.items()},
        },
        as_json=options.json,
    )


if __name__ == "__main__":
    with Run("floods") as opened:
        main(opened)
