"""`ostinato cycle --simulate week`: the cycles of a run for simulated developers, on a virtual clock."""

import argparse
import json

from rich.console import Console

from ostinato.loop.folder import owned
from ostinato.loop.show import Show
from ostinato_lab.week.report import draw, grids_of, report_of
from ostinato_lab.week.week import WeekPlan, open_policies, run_week

CYCLES = 30


class WeekError(ValueError):
    """A week cannot be simulated for what was given; the message says what is wrong."""


def simulate(options: argparse.Namespace) -> int:
    """Run a week in the run folder, and print its report."""
    if not 0 <= options.adversaries < 1 or options.developers < 1:
        raise WeekError("--adversaries is 0 or more and below 1, and --developers at least 1")
    plan = WeekPlan(
        cycles=CYCLES if options.cycles is None else options.cycles,
        seed=options.seed,
        developers=options.developers,
        adversaries=options.adversaries,
        overrides=(f"schedule.every_s={options.every}",),
    )
    console = Console(stderr=options.json)
    with owned(options.directory, "cycle --simulate week") as run:
        week = run_week(run.directory, plan, Show(console))
        report = report_of(week, open_policies(run))
        (run.directory / "week.json").write_text(json.dumps(report))
        draw(report, run.directory / "week.svg")
    for grid in grids_of(report):
        console.print(grid)
    took = report["most_hours_to_the_gate"]
    console.print(
        f"from collection to the gate's decision: {took:.2f} virtual hours at most", highlight=False
    )
    gained = report["hidden_satisfaction_gained"]
    bounds = f"{gained['estimate']:+.3f} [{gained['low']:+.3f}, {gained['high']:+.3f}]"
    console.print(f"hidden satisfaction, last version less first: {bounds}", highlight=False)
    for name in ("hold_out", "hold_out_tasks"):
        console.print(f"hold-out: {report[name]}", highlight=False)
    console.print(f"plot: {run.directory / 'week.svg'}", highlight=False)
    if options.json:
        print(json.dumps(report))  # noqa: T201
    return 0
