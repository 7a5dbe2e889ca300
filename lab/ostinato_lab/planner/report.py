"""A plan as tables for a person, as JSON, and as a picture of what each cycle spends its time on."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ostinato import extras
from ostinato_lab.planner.cluster import ClusterPlan
from ostinato_lab.planner.costs import Costs, PlanError
from ostinato_lab.planner.cycle import PHASES, TRIAL_PHASES, Simulated
from ostinato_lab.planner.laptop import StageTime
from ostinato_lab.planner.published import compare
from ostinato_lab.planner.runs import LaptopRun
from ostinato_lab.planner.sensitivity import Effect

FORMATS = (".svg", ".png", ".pdf")


def laptop_json(run: LaptopRun, stages: Sequence[StageTime], costs: Costs) -> dict[str, Any]:
    """Return the stages of a run on one machine, with their sums and the unit costs."""
    return {
        "model": run.name,
        "stages": [asdict(stage) for stage in stages],
        "wall_s": sum(stage.wall_s for stage in stages),
        "cpu_s": sum(stage.cpu_s for stage in stages),
        "costs": [asdict(row) for row in costs.of(*run.cost_groups)],
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
    console.print(cost_table(costs.of(*run.cost_groups)))


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


def cluster_json(
    plan: ClusterPlan, found: Simulated, effects: Sequence[Effect], price: float | None
) -> dict[str, Any]:
    """Return a simulated week: phases, bytes, idle shares, cost, what limits, what a change would buy."""
    gpus, hours = plan.trainers + plan.engines, found.now / 3600
    return {
        "model": plan.model.name,
        "cycle_s": found.cycle_s(),
        "phase_s": found.phase_s(),
        "trial_s": found.trial_s(),
        "sent_bytes": found.sent,
        "received_bytes": found.received,
        "versions": found.versions,
        "published_s": max(found.published_s, default=0.0),
        "pause_s": plan.pause_s(),
        "delta_bytes": plan.delta(),
        "idle": found.idle,
        "most_sandboxes": found.most_pods,
        "hours": hours,
        "gpu_hours": gpus * hours,
        "price": None if price is None else gpus * hours * price,
        "limit": limit(found),
        "effects": [asdict(effect) | {"gain_s": effect.gain_s} for effect in effects],
        "published": [asdict(each) for each in compare(plan, found)],
        "costs": [asdict(row) for row in plan.costs.of("cluster.")],
    }


def limit(found: Simulated) -> str:
    """Return the phase that takes most of a cycle."""
    return max(found.phase_s().items(), key=lambda item: item[1])[0]


def print_cluster(
    plan: ClusterPlan, found: Simulated, effects: Sequence[Effect], price: float | None
) -> None:
    """Print the same for a person."""
    console = Console(highlight=False, markup=False)
    week = cluster_json(plan, found, effects, price)
    gpus = f"{plan.trainers:g} trainers and {plan.engines:g} engine GPUs ({plan.kind.name})"
    phases = Table(
        "phase", "minutes", "of the cycle", title=f"{plan.model.name}: {gpus}, {plan.replica()} a replica"
    )
    for name, seconds in week["phase_s"].items():
        phases.add_row(name, f"{seconds / 60:,.1f}", f"{seconds / found.cycle_s():.0%}")
    phases.add_row("cycle", f"{found.cycle_s() / 60:,.1f}", "100%")
    for name, seconds in week["trial_s"].items():
        phases.add_row(f"{name}, beside the next", f"{seconds / 60:,.1f}", "")
    console.print(phases)
    links = Table(
        "link", "GB a version", "GB in all", title=f"{found.versions} versions, {week['hours']:.0f} hours"
    )
    links.add_row("to the bucket, anchors included", f"{plan.delta() / 1e9:.1f}", f"{found.sent / 1e9:,.0f}")
    for name, size in found.received.items():
        links.add_row(f"to {name}", f"{plan.delta() / 1e9:.1f}", f"{size / 1e9:,.0f}")
    console.print(links)
    idle = ", ".join(f"{name} {share:.0%}" for name, share in found.idle.items())
    money = "" if week["price"] is None else f", which cost {week['price']:,.0f}"
    console.print(f"idle: {idle}; at most {found.most_pods:,.0f} sandboxes at once")
    console.print(f"cost: {week['gpu_hours']:,.0f} GPU-hours{money}. What limits: {week['limit']}")
    buys = Table(
        "input", "halved, h", "doubled, h", "saves, min", title=f"one change ({found.cycle_s() / 3600:.2f} h)"
    )
    for effect in effects[:12]:
        buys.add_row(
            effect.name, _hours(effect.halved_s), _hours(effect.doubled_s), f"{effect.gain_s / 60:.1f}"
        )
    console.print(buys)
    known = Table("what", "published", "computed", "what explains the difference")
    for each in compare(plan, found):
        known.add_row(each.what, each.published, each.computed, each.why)
    console.print(known)
    console.print(cost_table(plan.costs.of("cluster.")))


def _hours(seconds: float | None) -> str:
    return "refused" if seconds is None else f"{seconds / 3600:.2f}"


def draw(found: Simulated, path: Path, title: str) -> None:
    """Draw every cycle as a row of phases. Raises PlanError without matplotlib or a known suffix."""
    if path.suffix not in FORMATS:
        raise PlanError(f"--plot {path}: the name ends in one of {', '.join(FORMATS)}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PlanError(extras.sentence("matplotlib", "--plot")) from error
    mpl.rcParams["svg.hashsalt"] = "plan"  # the same plan is the same file
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5))
    axes = figure.subplots()
    for number, phase in enumerate((*PHASES, *TRIAL_PHASES)):
        spans = [span for span in found.spans if span.name == phase]
        axes.barh(
            [span.cycle + 1 for span in spans],
            [span.seconds / 3600 for span in spans],
            left=[span.start / 3600 for span in spans],
            color=f"C{number}",
            label=phase,
        )
    axes.set(xlabel="hours", ylabel="cycle", title=title)
    axes.invert_yaxis()
    axes.legend(fontsize=8, loc="lower left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
