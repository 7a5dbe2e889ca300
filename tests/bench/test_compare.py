"""Covers bench/compare.py and bench/page.py: the figures of a suite, and how people read them."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ostinato.bench.axes import PassResult
from ostinato.bench.compare import FEWEST, Contrast, SuiteFigures, figures
from ostinato.bench.contest import Results
from ostinato.bench.page import page, plot, text
from ostinato.bench.suite import BenchSuite
from ostinato.types import Task

PASSES = 4
TASKS = tuple(
    Task(
        id=f"t{index}",
        kind="fix",
        split="seeds" if index % 2 else "names",
        key=str(index),
        instruction="x",
        directory=Path("nowhere"),
        test_ids=(),
        metadata={"cluster": f"repository {index % 20}"},
    )
    for index in range(120)
)
SUITE = BenchSuite(name="small", version=1, hash="9f", tasks=TASKS)


def results(rate: float, seed: int, tokens: float = 100.0) -> Results:
    rng = Random(seed)
    return {
        (task.id, number): PassResult(
            solved=rng.random() < rate,
            grade="guarded",
            measures={"efficiency": {"tokens_out": tokens + rng.random()}},
        )
        for task in TASKS
        for number in range(PASSES)
    }


def change(first: Results, second: Results, measure: str = "solved") -> Contrast:
    (changes,) = figures(SUITE, PASSES, {"a": first, "b": second}).changes.values()
    return changes[measure]


def test_versions_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    found = change(results(0.6, 1), results(0.4, 2))
    assert found.finding.high is not None
    assert found.holds and found.finding.high < 0 and 0 < (found.detectable or 0) < 0.2
    assert not change(results(0.5, 1), results(0.5, 3)).holds


def test_every_axis_is_compared_by_itself() -> None:
    found = change(results(0.5, 1), results(0.5, 3, tokens=150.0), "efficiency/tokens_out")
    assert found.holds and found.finding.value == pytest.approx(50, abs=1)


@pytest.mark.parametrize("repositories", [1, 2, 3, 4, 8])
def test_an_interval_can_be_true_or_too_few_is_said(repositories: int) -> None:
    """Shares lie in [0, 1] and amounts above 0; nothing is certain after a few passes that agree."""
    rng = Random(repositories)
    tasks = tuple(
        replace(task, metadata={"cluster": f"repository {index % repositories}"})
        for index, task in enumerate(TASKS[:8])
    )

    def side(shift: float) -> Results:
        return {
            (task.id, 0): PassResult(
                solved=rng.random() < 0.5,
                grade="guarded",
                measures={
                    "correct": {"ran_tests": float(rng.random() < 0.8), "tampered": 0.0},
                    "quality": {
                        "lines_added": float(rng.random() < 0.2) * 90,
                        "lint_more": rng.choice([-2.0, 0.0]),
                    },
                    "efficiency": {"calls": 3.0 + shift},
                },
            )
            for task in tasks
        }

    found = figures(replace(SUITE, tasks=tasks), 1, {"a": side(0), "b": side(1)})
    (changes,) = found.changes.values()
    for one in found.sides:
        assert one.solve is not None
        measures = {name: each for axis in one.axes.values() for name, each in axis.items()}
        for name, each in {"solve": one.solve, **measures}.items():
            told = repositories >= FEWEST and name != "calls"
            assert ("too few" in each.text) is not told, (name, each)
            if each.low is not None and each.high is not None:
                assert each.low <= each.value <= each.high and each.low < each.high
                assert each.low >= 0 or name == "lint_more"
                assert each.high <= 1 or name in ("lines_added", "lint_more")
    for name, each in changes.items():
        if each.finding.low is None:
            assert not each.holds and each.p == 1 and each.detectable is None
        else:
            assert repositories >= FEWEST and name != "efficiency/calls"
            assert each.finding.high is not None and each.finding.low < each.finding.high
            assert name.partition("/")[2] not in ("", "ran_tests", "tampered") or each.finding.low >= -1
    printed = text(found)
    json.dumps(found.as_json(), allow_nan=False)
    assert "inf" not in printed and "nan" not in printed and plot(found)


def test_a_measure_that_one_side_lacks_is_missing() -> None:
    without = {key: PassResult(solved=each.solved, grade="guarded") for key, each in results(0.5, 3).items()}
    found = figures(SUITE, PASSES, {"a": results(0.5, 1), "b": without})
    (changes,) = found.changes.values()
    assert list(changes) == ["solved"]
    assert found.sides[1].axes == {} and "missing" in text(found)


def test_only_tasks_with_every_pass_count() -> None:
    cut = {key: each for key, each in results(0.5, 1).items() if key[0] != "t0" or key[1] == 0}
    found = figures(SUITE, PASSES, {"a": cut, "b": results(0.5, 2), "c": {}})
    assert found.sides[0].solve is not None and found.sides[0].solve.tasks == 119
    assert found.changes["c against a"] == {}
    assert found.sides[2].solve is None


@pytest.fixture
def found() -> SuiteFigures:
    return figures(SUITE, PASSES, {"a <b>": results(0.5, 1), "b": results(0.3, 2)})


def test_the_page_needs_nothing_else(found: SuiteFigures) -> None:
    html = page(found)
    assert "a &lt;b&gt;" in html and 'src="data:image/png' in html and "http" not in html
    assert plot(found).startswith(b"\x89PNG")


def test_the_tables_hold_every_axis_and_json_all_figures(found: SuiteFigures) -> None:
    written = text(found)
    assert "best of 4" in written and "Axis: efficiency" in written and "detectable at 80 %" in written
    best = json.loads(json.dumps(found.as_json()))["sides"][0]["best_of"]
    assert best["1"]["value"] < best["2"]["value"] < best["4"]["value"]
    assert found.sides[0].splits.keys() == {"names", "seeds"}
