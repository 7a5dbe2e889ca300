"""The figures of a choice: order, intervals, pairs, parts, and models without a figure."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from ostinato.bench.select.base import Candidate, Cost, ModelReading
from ostinato.bench.select.figures import InstrumentTable, table, text

COST = Cost(read=10, sampled=2, cpu_s=0.5, wall_s=1.0)


@dataclass(frozen=True, kw_only=True)
class Given:
    """An instrument whose values are given."""

    clusters: tuple[str, ...]
    weights: tuple[float, ...]
    more_is_better: bool = False
    name: str = "loss"
    unit: str = "bits a byte"
    hash: str = "9f"
    facts: dict[str, Any] = field(default_factory=dict)

    async def values(self, candidate: Candidate) -> tuple[float, ...]:
        raise NotImplementedError


def measured(*, clusters: int = 12, more_is_better: bool = False) -> InstrumentTable:
    rng = Random(1)
    names = tuple(f"{i % clusters}" for i in range(48))
    hard = [rng.random() for _ in names]
    weights = (1.0,) * 48 if more_is_better else tuple(100.0 + 10 * i for i in range(48))
    values = {
        model: tuple(
            float(each > bar) if more_is_better else weight * (1 + each + bar)
            for each, weight in zip(hard, weights, strict=True)
        )
        for model, bar in (("poor", 0.9), ("good", 0.3), ("same", 0.3))
    }
    readings: dict[str, ModelReading | str] = {
        name: ModelReading(values=each, cost=COST) for name, each in values.items()
    }
    instrument = Given(clusters=names, weights=weights, more_is_better=more_is_better)
    half = [i < 24 for i in range(48)]
    return table(
        instrument, readings | {"mute": "mute: tells nothing"}, {"good": {"older": half, "none": []}}
    )


@pytest.mark.parametrize("more_is_better", [False, True])
def test_the_better_model_comes_first_and_pairs_say_what_is_told_apart(more_is_better: bool) -> None:
    found = measured(more_is_better=more_is_better)
    assert found.order[2] == "poor" and set(found.order) == {"good", "same", "poor"}
    apart = {(pair.first, pair.second): pair.less.apart for pair in found.pairs}
    assert apart == {
        (found.order[0], "poor"): True,
        (found.order[1], "poor"): True,
        found.order[:2]: False,
    }
    for each in found.figures.values():
        assert each.low is not None and each.high is not None and each.low <= each.value <= each.high
    assert found.parts.keys() == {"good"} and found.parts["good"].keys() == {"older"}
    assert found.not_possible == {"mute": "mute: tells nothing"}
    lines = text([found]).splitlines()
    assert lines[0] == "loss: bits a byte (hash 9f)" and "not possible: mute: tells nothing" in lines[-1]
    assert found.sums["poor"] == pytest.approx(
        found.figures["poor"].value * (48 if more_is_better else 16080)
    )


def test_few_clusters_tell_no_interval() -> None:
    found = measured(clusters=3)
    assert all(each.low is None for each in found.figures.values())
    assert not any(pair.less.apart for pair in found.pairs) and "(too few)" in text([found])
