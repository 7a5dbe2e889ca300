"""The report of a week: a row a cycle, the sum of all promotions, and a plot."""

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table as Grid

from ostinato_lab.week.policy import Policies
from ostinato_lab.week.satisfaction import gain, mean_gain
from ostinato_lab.week.week import BEGAN, Week

HOUR = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRow:
    """One cycle of a week.

    >>> CycleRow(cycle=1, hours=4.3, sessions=10, mature=8, reward=0.5, satisfaction=None, decision="hold",
    ...          reason="", champion=0).mature
    8
    """

    cycle: int
    hours: float
    """Its end, since the beginning of the week."""
    sessions: int
    mature: int
    """The sessions that were old enough to be trained on."""
    reward: float
    """The mean reward of those."""
    satisfaction: float | None
    """The mean hidden satisfaction of honest developers with the champion meanwhile; None of nobody."""
    decision: str
    reason: str
    champion: int


def rows_of(week: Week) -> list[CycleRow]:
    """Return the table of a week."""
    rows, since = [], BEGAN
    for number, cycle in enumerate(week.cycles, 1):
        met = [s for s in week.served if s.honest and s.arm == "champion" and since <= s.at < cycle.ended_at]
        rows.append(
            CycleRow(
                cycle=number,
                hours=round((cycle.ended_at - BEGAN) / HOUR, 1),
                sessions=cycle.collected.sessions,
                mature=cycle.collected.offered,
                reward=round(cycle.collected.mean_reward, 3),
                satisfaction=round(fmean(s.satisfaction for s in met), 3) if met else None,
                decision=cycle.decision.value,
                reason=cycle.reason,
                champion=cycle.champion,
            )
        )
        since = cycle.ended_at
    return rows


def report_of(week: Week, policies: Policies) -> dict[str, Any]:
    """Return the report as JSON: the rows, the sum on the hold-out, and the hidden satisfaction gained."""
    plan = week.plan
    versions = policies.of(week.first), policies.of(week.last)
    gains = gain(*versions, policies.vocabulary, plan.people, plan.seed)
    return {
        "plan": asdict(plan),
        "cycles": [asdict(row) for row in rows_of(week)],
        "promotions": sum(cycle.decision.promotes for cycle in week.cycles),
        "hold_out": week.cycles[-1].hold_out,
        "hold_out_tasks": next((c.hold_out_tasks for c in reversed(week.cycles) if c.hold_out_tasks), ""),
        "hidden_satisfaction_gained": asdict(mean_gain(gains)),
    }


def grid_of(report: dict[str, Any]) -> Grid:
    """Return the table for a terminal."""
    names = "cycle", "hours", "sessions", "mature", "reward", "satisfaction", "decision"
    grid = Grid(*names, "reason", box=None)
    for row in report["cycles"]:
        grid.add_row(*(str(row[name]) for name in names), row["reason"][:90])
    return grid


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw reward and hidden satisfaction over the week, with the promotions. It needs matplotlib."""
    from matplotlib.figure import Figure

    rows = report["cycles"]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panel = figure.subplots()
    hours = [row["hours"] for row in rows]
    panel.plot(hours, [row["reward"] for row in rows], label="reward of the sessions learnt from")
    satisfied = [row["satisfaction"] if row["satisfaction"] is not None else float("nan") for row in rows]
    panel.plot(hours, satisfied, label="hidden satisfaction with the champion")
    for row in rows:
        if row["decision"].startswith("promote"):
            panel.axvline(row["hours"], color="grey", linewidth=0.6, linestyle=":")
    panel.set(xlabel="hours of the virtual clock (dotted: promotions)")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
