"""Unit costs: what one unit of work takes, and where that is known from."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("costs.toml")


class PlanError(ValueError):
    """A plan cannot be made of what was given; the message says what is missing and what there is."""


class Origin(StrEnum):
    """The ways in which a figure is known."""

    MEASURED = "measured"  # here, by the named command
    PUBLISHED = "published"  # by the named paper or post
    ASSUMED = "assumed"  # for the named reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One figure with its unit and its source.

    >>> Cost(name="link.rtt", value=0.084, unit="s", origin=Origin.ASSUMED, source="an ocean").value
    0.084
    """

    name: str
    value: float
    unit: str
    origin: Origin
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.value < float("inf") or not self.unit or not self.source:
            raise PlanError(
                f"cost {self.name}: {self.value} {self.unit!r}: it is 0 or more, with a unit and a source"
            )


@dataclass(frozen=True, slots=True)
class Costs:
    """All figures of a plan by name. `costs["x"]` is the value of x."""

    rows: Mapping[str, Cost]

    def __getitem__(self, name: str) -> float:
        if name not in self.rows:
            raise PlanError(f"no cost is called {name!r}: there are {', '.join(sorted(self.rows))}")
        return self.rows[name].value

    def __iter__(self) -> Iterator[Cost]:
        return iter(self.rows.values())

    def times(self, name: str, factor: float) -> "Costs":
        """Return the same costs with one of them multiplied."""
        changed = replace(self.rows[name], value=self[name] * factor)
        return Costs({**self.rows, name: changed})

    def of(self, *prefixes: str) -> "Costs":
        """Return the figures whose name begins with one of `prefixes`."""
        return Costs({name: row for name, row in self.rows.items() if name.startswith(prefixes)})


def read_costs(path: Path = TABLE) -> Costs:
    """Read the table of unit costs. Raises PlanError naming a row without exactly one source."""
    rows = {}
    for group, costs in tomllib.loads(path.read_text()).items():
        for name, row in costs.items():
            rows[f"{group}.{name}"] = _cost(f"{group}.{name}", row)
    return Costs(rows)


def _cost(name: str, row: Mapping[str, Any]) -> Cost:
    origins = [origin for origin in Origin if origin.value in row]
    if len(origins) != 1 or set(row) != {"value", "unit", origins[0].value}:
        raise PlanError(f"cost {name} has {sorted(row)}: it needs value, unit and one of {', '.join(Origin)}")
    origin = origins[0]
    return Cost(
        name=name, value=float(row["value"]), unit=row["unit"], origin=origin, source=row[origin.value]
    )
