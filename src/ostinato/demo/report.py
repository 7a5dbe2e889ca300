"""The report of a demo: a table, plots, and files that can be read without this program."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ostinato.demo.config import SPLITS
from ostinato.demo.results import DemoResult
from ostinato.loop.results import Cycled
from ostinato.loop.run import Run, write_whole
from ostinato.types import Score

CAVEAT = (
    "The policy has well under a million parameters and knows one family of toy repositories. Its figures "
    "show that the system works, not that the model codes well."
)


def finish(run: Run, result: DemoResult, console: Console) -> None:
    """Write `report.json`, `report.md` and the plots, and print the table."""
    plots = _plots(run)
    write_whole(run.directory / "report.md", _markdown(result, plots))
    write_whole(run.report, json.dumps(as_json(result), indent=2))
    console.print(_table(result))
    console.print(_verdict(result.cycled), highlight=False)
    console.print(f"report: {run.directory / 'report.md'}", highlight=False)


def as_json(result: DemoResult) -> dict[str, Any]:
    """Return the content of `report.json`."""
    before, after = result.before.measurement.report, result.after.measurement.report

    def timed(stage: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values, "seconds": result.seconds[stage]}

    return {
        "seed": result.seed,
        "resumed": result.resumed,
        "wall_s": _wall(result),
        "cpu_s": result.cpu_s,
        "teach": timed("teach", asdict(result.taught)),
        "practice": {
            "held_out": {"before": _scores(before.scores), "after": _scores(after.scores)},
            **timed("practice", asdict(result.practised)),
        },
        "rates": {"before": before.rates, "after": after.rates},
        "live": timed("cycle-1/live", asdict(result.cycled.lived)),
        "cycle": timed("cycle-1", _cycle(result)),
        "integrity": asdict(result.integrity),
    }


def _cycle(result: DemoResult) -> dict[str, Any]:
    cycled, judged = result.cycled, result.cycled.judged
    gate = cycled if judged is None else judged.admission
    tested = judged.tested if judged else None
    return {
        "collected": {**asdict(cycled.collected), "seconds": result.seconds["cycle-1/collect"]},
        "candidate": cycled.candidate,
        "champion": cycled.champion,
        "held_out": _scores(judged.benched.scores) if judged else {},
        "gate": {"decision": gate.decision, "reason": gate.reason},
        "verdict": cycled.decision,
        "reason": cycled.reason,
        "arms": {name: asdict(arm) for name, arm in tested.arms.items()} if tested else {},
        "test": tested.evidence if tested else {},
        "engines": cycled.engines,
    }


def _scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {split: asdict(score) for split, score in scores.items()}


def _wall(result: DemoResult) -> float:
    """Return the time of all stages; one with a slash in its name is part of another."""
    return round(sum(time for stage, time in result.seconds.items() if "/" not in stage), 1)


def interval(score: Score) -> str:
    """Return a score as people read it."""
    return f"{score.solve:.0%} [{score.low:.0%}, {score.high:.0%}] n={score.n}"


def _verdict(cycled: Cycled) -> str:
    """Return the fate of the candidate in one line."""
    return (
        f"version {cycled.candidate}: {cycled.decision} ({cycled.reason}); "
        f"version {cycled.champion} is served"
    )


def _table(result: DemoResult) -> Table:
    table = Table(title="Held-out tasks solved (hidden tests), 95 % intervals")
    for column in ("split", "after teaching", "after practice", "after the live cycle"):
        table.add_column(column)
    for row in _rows(result):
        table.add_row(*row)
    return table


def _rows(result: DemoResult) -> list[tuple[str, ...]]:
    judged = result.cycled.judged
    measured = (result.before.scores, result.after.scores, judged.benched.scores if judged else {})
    return [
        (split, *(interval(scores[split]) if split in scores else "not measured" for scores in measured))
        for split in SPLITS
    ]


def _markdown(result: DemoResult, plots: list[Path]) -> str:
    cycled = result.cycled
    gate = cycled.judged.admission if cycled.judged else cycled
    lines = [
        f"# Run of seed {result.seed}",
        "",
        CAVEAT,
        "",
        f"Wall time {_wall(result):.0f} s, CPU time {result.cpu_s:.0f} s.",
        "",
        "| split | after teaching | after practice | after the live cycle |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in _rows(result)),
        "",
        "## The live cycle",
        "",
        f"{cycled.lived.sessions} sessions of simulated developers left {cycled.lived.signals} signals. "
        f"Gate: {gate.decision} ({gate.reason}). "
        f"Verdict: **{cycled.decision}** ({cycled.reason}). Served: version {cycled.champion}.",
        "",
        "## What must be zero",
        "",
        *(f"- {name}: {value}" for name, value in asdict(result.integrity).items()),
        "",
        *(f"![{path.stem}]({path.name})" for path in plots),
        "",
    ]
    return "\n".join(lines)


def _plots(run: Run) -> list[Path]:
    """Plot the loss of teaching and the reward of practice, from the trainers' logs."""
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
