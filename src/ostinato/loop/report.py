"""What is left at the end: a table, plots, and a report that can be read without us."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ostinato.loop.config import SPLITS
from ostinato.loop.run import Run, write_whole

CAVEAT = (
    "The policy has well under a million parameters and knows one family of toy repositories. Its figures "
    "show that the system works, not that the model codes well."
)


def finish(run: Run, report: Mapping[str, Any], console: Console) -> None:
    """Writes `report.json`, `report.md` and the plots, and prints the table."""
    plots = _plots(run)
    write_whole(run.directory / "report.md", _markdown(report, plots))
    write_whole(run.report, json.dumps(report, indent=2))
    console.print(_table(report))
    console.print(_verdict(report["cycle"]), highlight=False)
    console.print(f"report: {run.directory / 'report.md'}", highlight=False)


def interval(score: Mapping[str, Any]) -> str:
    """A score as people read it."""
    return f"{score['solve']:.0%} [{score['low']:.0%}, {score['high']:.0%}] n={score['n']}"


def _verdict(cycle: Mapping[str, Any]) -> str:
    """What became of the candidate, in one line."""
    return (
        f"version {cycle['candidate']}: {cycle['verdict']} ({cycle['reason']}); "
        f"version {cycle['champion']} is served"
    )


def _table(report: Mapping[str, Any]) -> Table:
    table = Table(title="Held-out tasks solved (hidden tests), 95 % intervals")
    for column in ("split", "after teaching", "after practice", "after the live cycle"):
        table.add_column(column)
    for row in _rows(report):
        table.add_row(*row)
    return table


def _rows(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    held = report["practice"]["held_out"]
    cycled = report["cycle"]["held_out"]
    return [
        (
            split,
            interval(held["before"][split]),
            interval(held["after"][split]),
            interval(cycled[split]) if split in cycled else "not measured",
        )
        for split in SPLITS
    ]


def _markdown(report: Mapping[str, Any], plots: list[Path]) -> str:
    cycle, whole = report["cycle"], report["integrity"]
    lines = [
        f"# Run of seed {report['seed']}",
        "",
        CAVEAT,
        "",
        f"Wall time {report['wall_s']:.0f} s, CPU time {report['cpu_s']:.0f} s.",
        "",
        "| split | after teaching | after practice | after the live cycle |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in _rows(report)),
        "",
        "## The live cycle",
        "",
        f"{report['live']['sessions']} sessions of simulated developers left "
        f"{report['live']['signals']} signals. "
        f"Gate: {cycle['gate']['decision']} ({cycle['gate']['reason']}). "
        f"Verdict: **{cycle['verdict']}** ({cycle['reason']}). Served: version {cycle['champion']}.",
        "",
        "## What must be zero",
        "",
        *(f"- {name}: {value}" for name, value in whole.items()),
        "",
        *(f"![{path.stem}]({path.name})" for path in plots),
        "",
    ]
    return "\n".join(lines)


def _plots(run: Run) -> list[Path]:
    """Loss of teaching and reward of practice, from the trainers' logs."""
    import matplotlib as mpl

    mpl.use("Agg")
    taught = _column(run.directory / "sft" / "sft.jsonl", "loss")
    rewarded = _column(run.directory / "learner-practice" / "learner.jsonl", "reward")
    return [
        _plot(run.directory / "teach.png", taught, "optimizer step", "loss on the teacher's sessions"),
        _plot(run.directory / "practice.png", rewarded, "version", "mean reward of the trained groups"),
    ]


def _column(path: Path, name: str) -> list[float]:
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row[name] for row in rows if name in row]


def _plot(path: Path, values: list[float], x: str, y: str) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="tight")
    axes = figure.subplots()
    axes.plot(values)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return path
