"""A study: a question, a prediction that can fail, arms that share their seeds, and what came of it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from ostinato.deploy.statistics import Interval, clustered, interval

LEVEL = 0.025
"""The level of each side of an interval over seeds."""
Curve = Sequence[float]
WIDE = 200
"""The width of the printed table, so that no figure is wrapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one arm came to on one seed: figures by name, and curves over versions to draw.

    >>> Outcome(figures={"solved": 0.5}, curves={}).figures["solved"]
    0.5
    """

    figures: Mapping[str, float]
    curves: Mapping[str, Curve]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of the prediction, and the test by which it holds or fails.

    `holds` reads the interval over seeds of each figure of each arm.
    """

    text: str
    holds: Callable[[Mapping[str, Mapping[str, Interval]]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question with its arms, and what was expected before anything ran."""

    name: str
    question: str
    shrunk: str
    """What stands here for a model and its tasks."""
    claims: Sequence[Claim]
    arms: Sequence[str]
    run: Callable[[str, int], Outcome]
    """The function from an arm and a seed to its outcome."""
    axis: str = "version"
    """What the curves run over."""


Results = Mapping[str, Sequence[Outcome]]


def carry_out(study: Study, seeds: Sequence[int]) -> Results:
    """Run every arm on every seed."""
    return {arm: [study.run(arm, seed) for seed in seeds] for arm in study.arms}


def intervals(results: Results) -> dict[str, dict[str, Interval]]:
    """Return each figure of each arm over seeds: its mean with Student's interval at 95 %."""
    return {
        arm: {
            name: over_seeds([outcome.figures[name] for outcome in outcomes]) for name in outcomes[0].figures
        }
        for arm, outcomes in results.items()
    }


def over_seeds(values: Sequence[float]) -> Interval:
    """Return the mean of the seeds' values between its bounds."""
    return interval(clustered(values, np.ones(len(values))), LEVEL)


def judged(study: Study, results: Results) -> dict[str, bool]:
    """Return each claim of the prediction with whether it held."""
    found = intervals(results)
    return {claim.text: claim.holds(found) for claim in study.claims}


def show(study: Study, results: Results) -> None:
    """Print the figures of each arm, and what became of the prediction."""
    found = intervals(results)
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    print(f"{study.name}: {study.question}\n({study.shrunk})\n")
    grid = Grid("arm", *names, box=None)
    for arm, row in found.items():
        grid.add_row(arm, *(cell(row.get(name)) for name in names))
    Console(width=WIDE).print(grid)
    for text, held in judged(study, results).items():
        print(f"{'held  ' if held else 'FAILED'}  {text}")


def cell(value: Interval | None) -> str:
    return "-" if value is None else f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"


def as_json(study: Study, results: Results) -> str:
    """Return figures, claims and the number of seeds as one line of JSON."""
    figures: dict[str, Any] = {
        arm: {name: [each.estimate, each.low, each.high] for name, each in row.items()}
        for arm, row in intervals(results).items()
    }
    seeds = len(next(iter(results.values())))
    return json.dumps({"study": study.name, "seeds": seeds, "arms": figures, "held": judged(study, results)})


def draw(study: Study, results: Results, path: Path) -> None:
    """Draw each curve in a panel of its own: the mean over seeds as a line, the seeds' range as a band.

    An arm has one colour in all panels.
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for some in results.values() for name in some[0].curves))
    lines: dict[str, Any] = {}
    figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
    for panel, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for arm, outcomes in results.items():
            if name not in outcomes[0].curves:
                continue
            rows = np.array([outcome.curves[name] for outcome in outcomes])
            colour = f"C{list(results).index(arm) % 10}"
            (lines[arm],) = panel.plot(rows.mean(0), color=colour)
            panel.fill_between(np.arange(rows.shape[1]), rows.min(0), rows.max(0), color=colour, alpha=0.15)
        panel.set(title=name, xlabel=study.axis)
        panel.spines[["top", "right"]].set_visible(False)
    letters = max(map(len, lines))
    columns = max(1, min(len(results), int(figure.get_figwidth() / (0.08 * letters + 0.6))))
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=columns, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
