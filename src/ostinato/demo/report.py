"""The report of a run: a table, plots, and files that can be read without this program."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ostinato.loop.beside.front import trial_name
from ostinato.loop.config import HELD_OUT
from ostinato.loop.dashboard.commands import write
from ostinato.loop.results import Cycled, Measured, RunResult, Tried
from ostinato.loop.run import Run, write_whole
from ostinato.types import Score


def finish(run: Run, result: RunResult, console: Console, *, caveat: str = "") -> None:
    """Write `report.json`, `report.md` and the plots, and `report.html` where the extra `dashboard` is
    installed; print the table. `caveat` heads the reports."""
    plots = _plots(run, result)
    write_whole(run.directory / "report.md", _markdown(result, plots, caveat))
    if find_spec("jinja2") is not None:
        write(run.directory, run.page, caveat=caveat)
    write_whole(run.report, json.dumps(as_json(result), indent=2))
    if _columns(result):
        console.print(_table(result))
    for line in _lines(result):
        console.print(line, highlight=False)
    console.print(f"report: {run.directory / 'report.md'}", highlight=False)


def as_json(result: RunResult) -> dict[str, Any]:
    """Return the content of `report.json`; it has nothing for a stage that was not listed."""
    stages = {name: stage.measurement for name, stage in _measured(result).items()}
    return {
        "seed": result.seed,
        "resumed": result.resumed,
        "wall_s": _wall(result),
        "cpu_s": result.cpu_s,
        "seconds": dict(result.seconds),
        "held_out": {name: _scores(each.report.scores) for name, each in stages.items()},
        "rates": {name: each.report.rates for name, each in stages.items()},
        "void": {name: {"attempts": each.void, "left_out": each.left_out} for name, each in stages.items()},
        "teach": asdict(result.taught) if result.taught else None,
        "practice": asdict(result.practised) if result.practised else None,
        "cycles": [_cycle(cycled) for cycled in _cycles(result)],
        "trials": [_trial(tried) for tried in _trials(result)],
        "served": asdict(result.turned.served) if result.turned else None,
        "integrity": asdict(result.integrity),
        "claim": asdict(result.claimed) if result.claimed else None,
    }


def _measured(result: RunResult) -> dict[str, Measured]:
    """Return the stages that measured a version, by name."""
    stages = {"before": result.before, "after": result.after, **result.elsewhere}
    return {name: stage for name, stage in stages.items() if stage is not None}


def _cycles(result: RunResult) -> tuple[Cycled, ...]:
    return result.turned.cycles if result.turned else ()


def _trials(result: RunResult) -> tuple[Tried, ...]:
    return result.turned.trials if result.turned else ()


def _cycle(cycled: Cycled) -> dict[str, Any]:
    judged = cycled.judged
    return {
        "hours": cycled.hours,
        "live": asdict(cycled.lived),
        "collected": asdict(cycled.collected),
        "candidate": cycled.candidate,
        "champion": cycled.base.champion,
        "held_out": _scores(judged.benched.scores) if judged else {},
        "gate": {"decision": cycled.decision, "reason": cycled.reason},
        "hold_out": cycled.hold_out,
    }


def _trial(tried: Tried) -> dict[str, Any]:
    tested = tried.tested
    return {
        **asdict(tried.opened),
        "verdict": tried.decision,
        "reason": tried.reason,
        "hold_out_tasks": tried.hold_out_tasks,
        "arms": {name: asdict(arm) for name, arm in tested.arms.items()} if tested else {},
        "test": tested.evidence if tested else {},
    }


def _scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {split: asdict(score) for split, score in scores.items()}


def _wall(result: RunResult) -> float:
    """Return the time of all stages; one with a slash in its name is part of another, and a trial goes on
    beside the cycles, or in the stage that waits for the last one."""
    trials = {trial_name(tried.opened.candidate) for tried in _trials(result)}
    alone = (time for stage, time in result.seconds.items() if "/" not in stage and stage not in trials)
    return round(sum(alone), 1)


def interval(score: Score) -> str:
    """Return a score as people read it."""
    beside = "" if score.best is None else f", best of {score.k} {score.best:.0%}"
    return f"{score.solve:.0%} [{score.low:.0%}, {score.high:.0%}]{beside} n={score.n}"


def _lines(result: RunResult) -> list[str]:
    """Return the fate of each candidate, at the gate and with people, and who is served, a line each."""
    gates = [f"version {each.candidate}: {each.decision} ({each.reason})" for each in _cycles(result)]
    trials = [f"{_met(each)}: {each.decision} ({each.reason})" for each in _trials(result)]
    served = [f"version {result.turned.served.version} is served"] if result.turned else []
    return gates + trials + served


def _met(tried: Tried) -> str:
    return f"trial of version {tried.opened.candidate} against version {tried.opened.champion}"


def _columns(result: RunResult) -> dict[str, Mapping[str, Score]]:
    """Return the scores of every measured version, by the heading of its column."""
    first = "after teaching" if result.taught else "at the start"
    last = "after practice" if result.practised else first
    named = ((first, result.before), (last, result.after))
    columns: dict[str, Measured | None] = {heading: stage for heading, stage in named if stage}
    columns |= result.elsewhere
    for number, cycled in enumerate(_cycles(result), 1):
        heading = "after the live cycle" if len(_cycles(result)) == 1 else f"after live cycle {number}"
        columns[heading] = cycled.judged.benched if cycled.judged else None
    return {
        heading: {} if measured is None else measured.scores
        for heading, measured in columns.items()
        if measured is not None or "cycle" in heading
    }


def _table(result: RunResult) -> Table:
    table = Table(title="Held-out tasks solved (hidden tests), 95 % intervals")
    for column in ("split", *_columns(result)):
        table.add_column(column)
    for row in _rows(result):
        table.add_row(*row)
    return table


def _rows(result: RunResult) -> list[tuple[str, ...]]:
    measured = _columns(result).values()
    splits = {split for scores in measured for split in scores}
    order = [*(split for split in HELD_OUT if split in splits), *sorted(splits - set(HELD_OUT))]
    return [
        (split, *(interval(scores[split]) if split in scores else "not measured" for scores in measured))
        for split in order
    ]


def _void(result: RunResult) -> list[str]:
    """Return the lines on what failures of ours spoilt, and what the stages went on without; often none."""
    spoilt = {}
    if (taught := result.taught) is not None:
        spoilt["teach"] = taught.void, f"{taught.left_out} demonstrations were left out"
    for name, stage in _measured(result).items():
        left_out = stage.measurement.left_out
        named = f": {', '.join(left_out)}" if left_out else ""
        spoilt[name] = stage.measurement.void, f"{len(left_out)} tasks were left out{named}"
    lines = [
        f"- {name}: {attempts} attempts, tried again; {rest}"
        for name, (attempts, rest) in spoilt.items()
        if attempts
    ]
    return ["## What failures of ours spoilt", "", *lines, ""] if lines else []


def _markdown(result: RunResult, plots: list[Path], caveat: str) -> str:
    columns = _columns(result)
    lines = [f"# Run of seed {result.seed}", ""]
    lines += [caveat, ""] if caveat else []
    lines += [f"Wall time {_wall(result):.0f} s, CPU time {result.cpu_s:.0f} s.", ""]
    if columns:
        lines += [f"| split | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(result)]
        lines.append("")
    lines += _void(result)
    for number, cycled in enumerate(_cycles(result), 1):
        lines += [
            f"## Live cycle {number}",
            "",
            f"{cycled.lived.sessions} sessions of developers left {cycled.lived.signals} signals. "
            f"Gate of version {cycled.candidate}: {cycled.decision} ({cycled.reason}).",
            *([f"Hold-out: {cycled.hold_out}."] if cycled.hold_out else []),
            "",
        ]
    for tried in _trials(result):
        lines += [
            f"## {_met(tried).capitalize()}",
            "",
            f"Verdict: **{tried.decision}** ({tried.reason}).",
            *([f"Hold-out: {tried.hold_out_tasks}."] if tried.hold_out_tasks else []),
            "",
        ]
    lines += [f"Served: version {result.turned.served.version}.", ""] if result.turned else []
    lines += [
        "## What must be zero",
        "",
        *(f"- {name}: {value}" for name, value in asdict(result.integrity).items()),
        "",
        *(f"![{path.stem}]({path.name})" for path in plots),
        "",
    ]
    return "\n".join(lines)


def _plots(run: Run, result: RunResult) -> list[Path]:
    """Plot the loss of teaching and the reward of practice, from the logs of the trainers that ran, and what
    every measured version solves."""
    import matplotlib as mpl

    mpl.use("Agg")
    sources = {
        "teach": ("sft/sft.jsonl", "loss", "optimizer step", "loss on the teacher's sessions"),
        "practice": ("learner-practice/learner.jsonl", "reward", "version", "mean reward of the groups"),
    }
    plots = [
        _plot(run.directory / f"{name}.png", values, x, y)
        for name, (log, column, x, y) in sources.items()
        if (values := _column(run.directory / log, column))
    ]
    return plots + ([_solved(run.directory / "solved.png", result)] if _columns(result) else [])


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


def _solved(path: Path, result: RunResult) -> Path:
    """Draw the solve rate of each split with its interval, the measured versions side by side."""
    from matplotlib.figure import Figure

    columns = {heading: scores for heading, scores in _columns(result).items() if scores}
    splits = [split for split, *_ in _rows(result)]
    figure = Figure(figsize=(7, 3.2), layout="tight")
    axes = figure.subplots()
    for number, (heading, scores) in enumerate(columns.items()):
        places = [place for place, split in enumerate(splits) if split in scores]
        found = [scores[splits[place]] for place in places]
        solve = [100 * score.solve for score in found]
        below = [100 * max(0.0, score.solve - score.low) for score in found]  # an end may be rounded
        above = [100 * max(0.0, score.high - score.solve) for score in found]
        moved = [place + 0.15 * (number - (len(columns) - 1) / 2) for place in places]
        axes.errorbar(moved, solve, (below, above), fmt="o", capsize=3, label=heading)
    axes.set_xticks(range(len(splits)), splits)
    axes.set(ylabel="held-out tasks solved, %", ylim=(0, None))
    axes.grid(alpha=0.3, axis="y")
    axes.legend()
    figure.savefig(path, dpi=120)
    return path
