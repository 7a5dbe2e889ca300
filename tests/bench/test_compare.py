"""Covers bench/compare.py and bench/page.py: the figures of a suite, and how people read them."""

import json
from pathlib import Path
from random import Random

import pytest

from ostinato.bench.axes import PassResult
from ostinato.bench.compare import Contrast, SuiteFigures, figures
from ostinato.bench.contest import Results
from ostinato.bench.page import page, plot, text, unfinished
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
    assert found.holds and found.finding.high < 0 and 0 < found.detectable < 0.2
    assert not change(results(0.5, 1), results(0.5, 3)).holds


def test_every_axis_is_compared_by_itself() -> None:
    found = change(results(0.5, 1), results(0.5, 3, tokens=150.0), "efficiency/tokens_out")
    assert found.holds and found.finding.value == pytest.approx(50, abs=1)


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
    assert [side.name for side in unfinished(found)] == ["a", "c"]
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
