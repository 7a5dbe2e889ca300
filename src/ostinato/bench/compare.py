"""The figures of a suite: each side on every axis, and the difference between two sides, task by task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ostinato.bench import estimate
from ostinato.bench.axes import SIGNED, is_share
from ostinato.bench.contest import Results
from ostinato.bench.suite import BenchSuite
from ostinato.deploy.outcomes import best_of
from ostinato.deploy.statistics import Floats, half_width, holm
from ostinato.types import Task

BEST_OF = (1, 2, 4, 8, 16)
FEWEST = 4
"""The repositories of which an interval can be told; fewer do not say how much repositories differ."""
SOLVED = "solved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """An estimate with its 95 % interval, over `tasks` tasks of `repositories` repositories.

    >>> Bounded(value=0.5, low=0.4, high=0.6, tasks=30, repositories=5).text
    '0.500 [0.400, 0.600]'
    """

    value: float
    low: float | None
    """None, as `high`, where too few repositories, or values that are all the same, tell no interval."""
    high: float | None
    tasks: int
    repositories: int

    @property
    def text(self) -> str:
        if self.low is None or self.high is None:
            return f"{_number(self.value)} (too few)"
        return f"{_number(self.value)} [{_number(self.low)}, {_number(self.high)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The second side less the first, on the same tasks.

    >>> Contrast(finding=Bounded(value=0.1, low=0.0, high=0.2, tasks=9, repositories=3), p=0.04,
    ...        detectable=0.15).holds
    False
    """

    finding: Bounded
    p: float
    """Two-sided, of no difference at all."""
    detectable: float | None
    """The smallest true difference that this shows with a chance of 80 %; None where it shows nothing."""
    holds: bool = False
    """True when Holm's rule over all measures of the comparison rejects no difference at 5 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFigures:
    """One side on every axis; a measure that no pass has is not there."""

    name: str
    passes: int
    """Finished passes, over all tasks."""
    solve: Bounded | None = None
    best_of: Mapping[int, Bounded] = field(default_factory=dict)
    splits: Mapping[str, Bounded] = field(default_factory=dict)
    axes: Mapping[str, Mapping[str, Bounded]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFigures:
    """All figures of a suite: `changes` is (first, second) side -> measure -> change, `solved` first."""

    suite: str
    hash: str
    tasks: int
    repositories: int
    passes: int
    sides: tuple[SideFigures, ...]
    changes: Mapping[str, Mapping[str, Contrast]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def figures(suite: BenchSuite, passes: int, results: Mapping[str, Results]) -> SuiteFigures:
    """Return the figures of every side that has results, and of each side against the first.

    A side is compared on the tasks of which both have every pass.
    """
    names = list(results)
    changes = {
        f"{other} against {names[0]}": _changes(suite, passes, results[names[0]], results[other])
        for other in names[1:]
    }
    return SuiteFigures(
        suite=suite.label,
        hash=suite.hash,
        tasks=len(suite.tasks),
        repositories=len({task.cluster for task in suite.tasks}),
        passes=passes,
        sides=tuple(_side(suite, passes, name, of) for name, of in results.items()),
        changes=changes,
    )


def _side(suite: BenchSuite, passes: int, name: str, results: Results) -> SideFigures:
    whole = _whole(suite.tasks, passes, [results])
    if not whole:
        return SideFigures(name=name, passes=len(results))
    solved = np.array([[results[task.id, k].solved for k in range(passes)] for task in whole], dtype=float)
    ks = [k for k in BEST_OF if k <= passes] + ([passes] if passes not in BEST_OF else [])
    splits = sorted({task.split for task in whole})
    return SideFigures(
        name=name,
        passes=len(results),
        solve=_finding(whole, solved.mean(axis=1), estimate.share),
        best_of={k: _finding(whole, best_of(solved, k), estimate.share) for k in ks},
        splits={
            split: _finding(
                [task for task in whole if task.split == split],
                solved.mean(axis=1)[[task.split == split for task in whole]],
                estimate.share,
            )
            for split in splits
        },
        axes=_axes(whole, passes, results),
    )


def _axes(tasks: Sequence[Task], passes: int, results: Results) -> dict[str, dict[str, Bounded]]:
    found: dict[str, dict[str, Bounded]] = {}
    for axis, measure in _measures(results):
        values = {task.id: _mean(results, task, passes, axis, measure) for task in tasks}
        known = [task for task in tasks if values[task.id] is not None]
        array = np.array([values[task.id] for task in known], dtype=float)
        how = estimate.quantity if measure in SIGNED else estimate.amount
        found.setdefault(axis, {})[measure] = _finding(
            known, array, estimate.share if is_share(measure) else how
        )
    return found


def _changes(suite: BenchSuite, passes: int, first: Results, second: Results) -> dict[str, Contrast]:
    whole = _whole(suite.tasks, passes, [first, second])
    if not whole:
        return {}

    def rate(results: Results) -> Floats:
        return np.array([np.mean([results[task.id, k].solved for k in range(passes)]) for task in whole])

    changes = {SOLVED: _change(whole, rate(second) - rate(first), shares=True)}
    for axis, measure in [each for each in _measures(first) if each in _measures(second)]:
        pairs = {
            task.id: (_mean(first, task, passes, axis, measure), _mean(second, task, passes, axis, measure))
            for task in whole
        }
        known = [task for task in whole if None not in pairs[task.id]]
        if known:
            differences = np.array([pairs[task.id][1] for task in known], dtype=float) - np.array(
                [pairs[task.id][0] for task in known], dtype=float
            )
            changes[f"{axis}/{measure}"] = _change(known, differences, shares=is_share(measure))
    rejected = holm([change.p for change in changes.values()], estimate.LEVEL)
    return {
        name: Contrast(finding=each.finding, p=each.p, detectable=each.detectable, holds=holds)
        for (name, each), holds in zip(changes.items(), rejected, strict=True)
    }


def _change(tasks: Sequence[Task], differences: Floats, *, shares: bool) -> Contrast:
    """Return the change of a share, or of a measure without bounds; too few repositories show nothing."""
    clusters = estimate.member([task.cluster for task in tasks])
    found = (estimate.difference if shares else estimate.mean_difference)(differences, clusters)
    half, most = half_width(found, estimate.LEVEL / 2), 1.0 if shares else np.inf
    ends = (np.maximum(found.value - half, -most), np.minimum(found.value + half, most))
    finding = _bounded(tasks, found.value, *ends)
    told = finding.low is not None
    return Contrast(
        finding=finding,
        p=float(estimate.two_sided(found)) if told else 1.0,
        detectable=estimate.detectable(found, differences) if told else None,
    )


def _finding(
    tasks: Sequence[Task], values: Floats, how: Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
) -> Bounded:
    return _bounded(tasks, *how(values, estimate.member([task.cluster for task in tasks])))


def _bounded(tasks: Sequence[Task], value: Floats, low: Floats, high: Floats) -> Bounded:
    repositories = len({task.cluster for task in tasks})
    told = repositories >= FEWEST and bool(np.isfinite([low, high]).all() and low < high)
    return Bounded(
        value=float(value),
        low=float(low) if told else None,
        high=float(high) if told else None,
        tasks=len(tasks),
        repositories=repositories,
    )


def _whole(tasks: Sequence[Task], passes: int, sides: Sequence[Results]) -> list[Task]:
    """Return the tasks of which every side has every pass."""
    return [
        task for task in tasks if all((task.id, number) in side for side in sides for number in range(passes))
    ]


def _measures(results: Results) -> list[tuple[str, str]]:
    found = {(axis, name) for each in results.values() for axis, of in each.measures.items() for name in of}
    return sorted(found)


def _mean(results: Results, task: Task, passes: int, axis: str, measure: str) -> float | None:
    """Return the mean over the passes that have the measure; None when none has."""
    every = [results[task.id, number].measures.get(axis, {}).get(measure) for number in range(passes)]
    known = [value for value in every if value is not None]
    return sum(known) / len(known) if known else None


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
