"""The readings of all models as figures: each instrument's order with intervals, every pair, and the cost."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ostinato.bench import estimate
from ostinato.bench.compare import FEWEST
from ostinato.bench.select.base import Candidate, Cost, Instrument, ModelReading, NotPossibleError
from ostinato.deploy.statistics import Estimate, Floats, clustered, half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureInterval:
    """A figure with its 95 % interval over the clusters of an instrument.

    >>> FigureInterval(value=0.5, low=0.4, high=0.6, clusters=8).text
    '0.500 [0.400, 0.600]'
    """

    value: float
    low: float | None
    """None, as `high`, where fewer than four clusters do not say how much clusters differ."""
    high: float | None
    clusters: int

    @property
    def text(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:,.3f} (too few)"
        return f"{self.value:,.3f} [{self.low:,.3f}, {self.high:,.3f}]"

    @property
    def apart(self) -> bool:
        """True when an interval of a difference leaves 0 out."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The first model less the second, item by item on the same items.

    >>> less = FigureInterval(value=-1.0, low=-2.0, high=-0.5, clusters=8)
    >>> Pair(first="a", second="b", less=less).less.apart
    True
    """

    first: str
    second: str
    less: FigureInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentTable:
    """One instrument over all models; those that it cannot be used on have a reason instead of a figure."""

    instrument: str
    hash: str
    unit: str
    facts: Mapping[str, Any]
    order: tuple[str, ...]
    """The models by their figures, the best first; neighbours may not be told apart."""
    figures: Mapping[str, FigureInterval]
    sums: Mapping[str, float]
    parts: Mapping[str, Mapping[str, FigureInterval]]
    """The figures of a part of the items, such as libraries older than a model's cut-off."""
    pairs: tuple[Pair, ...]
    costs: Mapping[str, Cost]
    not_possible: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def reading(instrument: Instrument, candidate: Candidate) -> ModelReading | str:
    """Use an instrument on a model; return why it is not possible where it is not."""
    read, sampled, cpu, wall = candidate.read, candidate.sampled, time.process_time(), time.monotonic()
    try:
        values = await instrument.values(candidate)
    except NotPossibleError as error:
        return str(error)
    cost = Cost(
        read=candidate.read - read,
        sampled=candidate.sampled - sampled,
        cpu_s=round(time.process_time() - cpu, 2),
        wall_s=round(time.monotonic() - wall, 2),
    )
    return ModelReading(values=values, cost=cost)


def table(
    instrument: Instrument,
    readings: Mapping[str, ModelReading | str],
    parts: Mapping[str, Mapping[str, Sequence[bool]]] | None = None,
) -> InstrumentTable:
    """Return an instrument's table; `parts` names items for each model, by part."""
    found = {name: each for name, each in readings.items() if isinstance(each, ModelReading)}
    weights = np.array(instrument.weights)
    groups = estimate.member(list(instrument.clusters))
    values = {name: np.array(each.values) for name, each in found.items()}
    figures = {name: _figure(instrument, each, weights, groups) for name, each in values.items()}
    sign = -1.0 if instrument.more_is_better else 1.0
    order = tuple(sorted(figures, key=lambda name: sign * figures[name].value))
    return InstrumentTable(
        instrument=instrument.name,
        hash=instrument.hash,
        unit=instrument.unit,
        facts=dict(instrument.facts),
        order=order,
        figures=figures,
        sums={name: float(each.sum()) for name, each in values.items()},
        parts={
            name: {
                part: _figure(instrument, values[name][chosen], weights[chosen], groups[chosen])
                for part, items in some.items()
                if (chosen := np.array(items, dtype=bool)).any()
            }
            for name, some in (parts or {}).items()
            if name in values
        },
        pairs=tuple(
            Pair(first=a, second=b, less=_less(instrument, values[a] - values[b], weights, groups))
            for a, b in combinations(order, 2)
        ),
        costs={name: each.cost for name, each in found.items()},
        not_possible={name: each for name, each in readings.items() if isinstance(each, str)},
    )


def _figure(instrument: Instrument, values: Floats, weights: Floats, groups: Floats) -> FigureInterval:
    used = groups[:, groups.sum(axis=0) > 0]
    if instrument.more_is_better:  # a share, whose interval ends at 0 and 1
        value, low, high = (float(each) for each in estimate.share(values, used))
        few = used.shape[1] < FEWEST
        return FigureInterval(
            value=value, low=None if few else low, high=None if few else high, clusters=used.shape[1]
        )
    found = _interval(clustered(values @ used, weights @ used), used.shape[1])
    return found if found.low is None else FigureInterval(**asdict(found) | {"low": max(0.0, found.low)})


def _less(instrument: Instrument, values: Floats, weights: Floats, groups: Floats) -> FigureInterval:
    found = (
        estimate.difference(values, groups)
        if instrument.more_is_better
        else clustered(values @ groups, weights @ groups)
    )
    return _interval(found, groups.shape[1])


def _interval(found: Estimate, clusters: int) -> FigureInterval:
    value, half = float(found.value), float(half_width(found, estimate.LEVEL / 2))
    if clusters < FEWEST or not np.isfinite(half):
        return FigureInterval(value=value, low=None, high=None, clusters=clusters)
    return FigureInterval(value=value, low=value - half, high=value + half, clusters=clusters)


def text(tables: Sequence[InstrumentTable]) -> str:
    """Return all tables as plain text: a model a line, the best first, beside the next one and its cost."""
    return "\n".join(line for each in tables for line in (*_lines(each), ""))


def _lines(table: InstrumentTable) -> Iterator[str]:
    facts = ", ".join(
        f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in table.facts.items()
        if value
    )
    yield f"{table.instrument}: {table.unit} (hash {table.hash}{'; ' if facts else ''}{facts})"
    next_to = {(pair.first, pair.second): pair.less for pair in table.pairs}
    header = ("model", table.unit, "sum", "less the next one", "apart", "read", "sampled", "CPU s", "s")
    rows: list[tuple[str, ...]] = [header]
    for number, name in enumerate(table.order):
        after = table.order[number + 1 : number + 2]
        less, cost = next_to[name, after[0]] if after else None, table.costs[name]
        rows.append(
            (
                name,
                table.figures[name].text,
                f"{table.sums[name]:,.0f}",
                less.text if less else "",
                ("yes" if less.apart else "no") if less else "",
                *(f"{each:,.0f}" for each in (cost.read, cost.sampled, cost.cpu_s, cost.wall_s)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"  {'  '.join(cells)}".rstrip()
    for name, parts in table.parts.items():
        yield f"  {name}: " + ", ".join(f"{part} {figure.text}" for part, figure in parts.items())
    for name, why in table.not_possible.items():
        yield f"  not possible: {why}" if why.startswith(name) else f"  not possible: {name}: {why}"
