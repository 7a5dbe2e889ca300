"""The predictions of the planner beside what was measured, and what one session costs at scale.

    python -m benchmarks.plan [--json] [--scale] [--sizes 100 1000 10000 100000] [--engines 100 1000 10000]
    python -m benchmarks.plan --quarters [--json]   # measure a quarter of the demo, as children and on nodes

The predictions come from unit costs that were measured by themselves (`benchmarks.plan_units`); the measured
runs are those of `docs/results.md` and `docs/real.md`, which had other work beside them, and a quarter of the
demo, on three Ray nodes too. `--quarters` measures those two again: 700 CPU seconds, and it needs Ray, whose
nodes are started before and not counted. `--scale` adds `benchmarks.plan_scale`. An `error` is predicted
over measured, less 1, by the same clock.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.ray_nodes import three_nodes

from benchmarks.measure import Cpu, Run, table
from benchmarks.plan_scale import ENGINES, SIZES, growth, scale
from ostinato.demo.commands import DEMO
from ostinato_lab.planner.costs import read_costs
from ostinato_lab.planner.laptop import StageTime, predict
from ostinato_lab.planner.report import whole
from ostinato_lab.planner.runs import read_runs

MEASURED = {
    ("demo", "all", "wall_s"): 623.0,
    ("demo", "all", "cpu_s"): 893.0,
    ("demo-quarter", "teach", "cpu_s"): 111.0,
    ("demo-quarter", "before", "cpu_s"): 14.7,
    ("demo-quarter", "all", "cpu_s"): 320.3,
    ("demo-quarter-ray", "all", "cpu_s"): 363.6,
    ("smollm2", "teach", "wall_s"): 1890.0,
    ("smollm2", "before", "wall_s"): 750.0,
    ("smollm2", "practice", "wall_s"): 4410.0,
    ("smollm2", "after", "wall_s"): 689.0,
    ("smollm2", "all", "wall_s"): 7739.0,
    ("smollm2", "all", "cpu_s"): 8846.0,
}
"""Seconds by run, stage and clock."""
QUARTER = {
    "tasks.held_out": "{seeds = 40, names = 10, pairs = 10, larger = 10, families = 10, mined = 3}",
    "teach.lessons": 175,
    "teach.steps": 300,
    "refine.versions": 8,
    "live.developers": 20,
    "live.sessions": 80,
    "live.ab_sessions": 200,
    "live.canary_sessions": 20,
}
"""The settings of a quarter of the demo."""


def stages_of(name: str) -> dict[str, StageTime]:
    """Return the predicted stages of a run by name, and their sum as `all`."""
    stages = predict(read_runs()[name], read_costs())
    return {stage.name: stage for stage in (*stages, whole(stages))}


def compared() -> list[dict[str, Any]]:
    """Return a row for each measured figure."""
    predicted = {name: stages_of(name) for name in {run for run, _, _ in MEASURED}}
    rows = []
    for (run, stage, clock), measured in MEASURED.items():
        value = getattr(predicted[run][stage], clock)
        rows.append(
            {
                "run": run,
                "stage": stage,
                "clock": clock,
                "predicted": round(value, 1),
                "measured": measured,
                "error": round(value / measured - 1, 4),
            }
        )
    return rows


def quarters(cpu: Cpu) -> dict[str, float]:
    """Return the CPU seconds of a quarter of the demo by its name, as children and on three Ray nodes."""
    with TemporaryDirectory() as folder:
        spent = {"demo-quarter": cpu_of_quarter(cpu, Path(folder, "children"), {})}
        with three_nodes() as cluster:
            placed = {"placement.kind": "ray", "placement.address": cluster.address}
            spent["demo-quarter-ray"] = cpu_of_quarter(cpu, Path(folder, "nodes"), placed)
    return spent


def cpu_of_quarter(cpu: Cpu, directory: Path, more: dict[str, str]) -> float:
    before = cpu.seconds()
    settings = [word for name, value in (QUARTER | more).items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "ostinato", "run", str(DEMO), "--directory", str(directory), *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return cpu.seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scale", action="store_true", help="measure the scale too: two CPU minutes")
    parser.add_argument("--quarters", action="store_true", help="measure a quarter of the demo, and no more")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--engines", type=int, nargs="*", default=ENGINES)
    options = parser.parse_args()
    with Run("plan", "torch") as run:
        if options.quarters:
            figures: dict[str, Any] = dict(quarters(run.cpu))
            table(["run", "CPU seconds"], [[name, f"{seconds:.0f}"] for name, seconds in figures.items()])
        else:
            figures = all_runs(options)
        run.finish(figures, as_json=options.json)


def all_runs(options: argparse.Namespace) -> dict[str, Any]:
    """Print the table of runs, and return it with the scale where that is asked for."""
    rows = compared()
    header = ["run", "stage", "clock", "predicted", "measured", "error"]
    table(
        header,
        [[f"{row[name]:+.0%}" if name == "error" else str(row[name]) for name in header] for row in rows],
    )
    figures: dict[str, Any] = {"runs": rows, "largest_error": max(abs(row["error"]) for row in rows)}
    if options.scale:
        found = scale(options.sizes, options.engines)
        figures["scale"] = {
            name: {str(size): cost for size, cost in costs.items()} | {"growth": growth(costs)}
            for name, costs in found.items()
        }
        for name, costs in found.items():
            print(f"{name}: {growth(costs):.2f} times from {min(costs):,} to {max(costs):,}")
    return figures


if __name__ == "__main__":
    main()
