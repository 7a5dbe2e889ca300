"""What a plan says, as tables for a person and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from ostinato.loop.planner.costs import Costs
from ostinato.loop.planner.laptop import StageTime
from ostinato.loop.planner.runs import LaptopRun


def laptop_json(run: LaptopRun, stages: Sequence[StageTime], costs: Costs) -> dict[str, Any]:
    """Return the stages of a run on one machine, with their sums and the unit costs."""
    return {
        "model": run.name,
        "stages": [asdict(stage) for stage in stages],
        "wall_s": sum(stage.wall_s for stage in stages),
        "cpu_s": sum(stage.cpu_s for stage in stages),
        "costs": [asdict(row) for row in costs.of("laptop.", f"{run.shape}.")],
    }


def print_laptop(run: LaptopRun, stages: Sequence[StageTime], costs: Costs) -> None:
    """Print the same for a person."""
    console = Console(highlight=False, markup=False)
    table = Table(
        "stage", "seconds", "CPU seconds", "cores busy", title=f"{run.name}, {run.cores:g} idle cores"
    )
    for stage in (*stages, whole(stages)):
        busy = f"{stage.cpu_s / stage.wall_s / run.cores:.0%}"
        table.add_row(stage.name, f"{stage.wall_s:,.0f}", f"{stage.cpu_s:,.0f}", busy)
    console.print(table)
    console.print(cost_table(costs.of("laptop.", f"{run.shape}.")))


def whole(stages: Sequence[StageTime]) -> StageTime:
    """Return all stages as one."""
    wall, cpu = (sum(values) for values in zip(*((s.wall_s, s.cpu_s) for s in stages), strict=True))
    return StageTime(name="all", wall_s=wall, cpu_s=cpu)


def cost_table(costs: Costs) -> Table:
    """Return the unit costs with their sources as a table."""
    table = Table("unit cost", "value", "unit", "source", title="from")
    for row in costs:
        table.add_row(row.name, f"{row.value:.4g}", row.unit, f"{row.origin}: {row.source}")
    return table
