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

    >>> CycleRow(cycle=1, hours=4.3, took=4.3, sessions=10, mature=8, age=2.1, reward=0.5, satisfaction=None,
    ...          decision="hold", reason="", champion=0).mature
    8
    """

    cycle: int
    hours: float
    """Its end, since the beginning of the week."""
    took: float
    """The virtual hours from the beginning of its collection to the gate's decision."""
    sessions: int
    mature: int
    """The sessions that were old enough to be trained on."""
    age: float
    """The age in hours of the oldest of those."""
    reward: float
    """The mean reward of those."""
    satisfaction: float | None
    """The mean hidden satisfaction of honest developers with the champion meanwhile; None of nobody."""
    decision: str
    """The gate's."""
    reason: str
    champion: int
    """The version that it was trained on and compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial of a week, beside its cycles.

    >>> TrialRow(candidate=4, champion=0, decision="hold", reason="").candidate
    4
    """

    candidate: int
    champion: int
    decision: str
    reason: str


def rows_of(week: Week) -> list[CycleRow]:
    """Return the table of a week."""
    rows, since = [], BEGAN
    for number, cycle in enumerate(week.cycles, 1):
        met = [s for s in week.served if s.honest and s.arm == "champion" and since <= s.at < cycle.ended_at]
        rows.append(
            CycleRow(
                cycle=number,
                hours=round((cycle.ended_at - BEGAN) / HOUR, 1),
                took=round(cycle.hours, 2),
                sessions=cycle.collected.sessions,
                mature=cycle.collected.offered,
                age=round(cycle.collected.oldest_age_s / HOUR, 1),
                reward=round(cycle.collected.mean_reward, 3),
                satisfaction=round(fmean(s.satisfaction for s in met), 3) if met else None,
                decision=cycle.decision.value,
                reason=cycle.reason,
                champion=cycle.base.champion,
            )
        )
        since = cycle.ended_at
    return rows


def trials_of(week: Week) -> list[TrialRow]:
    """Return the trials of a week."""
    return [
        TrialRow(
            candidate=trial.opened.candidate,
            champion=trial.opened.champion,
            decision=trial.decision.value,
            reason=trial.reason,
        )
        for trial in week.trials
    ]


def report_of(week: Week, policies: Policies) -> dict[str, Any]:
    """Return the report as JSON: the rows, the sum on the hold-out, and the hidden satisfaction gained."""
    plan = week.plan
    versions = policies.of(week.first), policies.of(week.last)
    gains = gain(*versions, policies.vocabulary, plan.people, plan.seed)
    return {
        "plan": asdict(plan),
        "cycles": [asdict(row) for row in rows_of(week)],
        "trials": [asdict(row) for row in trials_of(week)],
        "most_hours_to_the_gate": max(row.took for row in rows_of(week)),
        "promotions": sum(trial.decision.promotes for trial in week.trials),
        "hold_out": week.cycles[-1].hold_out,
        "hold_out_tasks": next((t.hold_out_tasks for t in reversed(week.trials) if t.hold_out_tasks), ""),
        "hidden_satisfaction_gained": asdict(mean_gain(gains)),
    }


CYCLE_COLUMNS = "cycle", "hours", "took", "sessions", "mature", "age", "reward", "satisfaction", "decision"
TRIAL_COLUMNS = "candidate", "champion", "decision"


def grids_of(report: dict[str, Any]) -> list[Grid]:
    """Return the tables for a terminal: the cycles, and the trials beside them."""
    grids = []
    for rows, names in ((report["cycles"], CYCLE_COLUMNS), (report["trials"], TRIAL_COLUMNS)):
        grid = Grid(*names, "reason", box=None)
        for row in rows:
            grid.add_row(*(str(row[name]) for name in names), row["reason"][:90])
        grids.append(grid)
    return grids


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
    served = [row["champion"] for row in rows]
    for row, before in zip(rows[1:], served, strict=False):
        if row["champion"] != before:
            panel.axvline(row["hours"], color="grey", linewidth=0.6, linestyle=":")
    panel.set(xlabel="hours of the virtual clock (dotted: another champion)")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
