from collections.abc import Callable
from pathlib import Path

import pytest

from ostinato.bench.axes import PassResult
from ostinato.bench.contest import Results
from ostinato.bench.gating import suite_changes
from ostinato.bench.suite import BenchSuite, SuiteError
from ostinato.types import Task

PASSES = 2


@pytest.fixture
def suite() -> BenchSuite:
    return BenchSuite(name="mined", version=1, hash="9f", tasks=tuple(task(n) for n in range(12)))


def task(number: int) -> Task:
    split = "mined" if number % 2 else "other"
    where = Path(f"t{number}")
    return Task(
        id=f"t{number}",
        key=f"k{number}",
        kind="mined",
        split=split,
        instruction="x",
        directory=where,
        test_ids=(),
        metadata={"cluster": f"c{number % 4}"},
    )


def side(suite: BenchSuite, each: Callable[[int], PassResult]) -> Results:
    return {
        (task.id, number): each(index) for index, task in enumerate(suite.tasks) for number in range(PASSES)
    }


def passed(solved: bool, **measures: dict[str, float]) -> PassResult:
    return PassResult(solved=solved, grade="guarded", measures=measures)


def test_every_split_and_measure_is_compared(suite: BenchSuite) -> None:
    before = side(suite, lambda index: passed(True, quality={"files": 1.0}, correct={"broken": 0.0}))
    after = side(suite, lambda index: passed(index % 2 == 0, quality={"files": 3.0}, correct={"broken": 1.0}))
    found = suite_changes(suite, PASSES, before, after)
    assert {split: float(each.value) for split, each in found.splits.items()} == {"mined": -1.0, "other": 0.0}
    assert found.measures["quality/files"].value == 2.0 and found.measures["correct/broken"].value == 1.0
    assert found.splits["other"].error > 0  # agreement on a few tasks is no proof


def test_a_measure_counts_where_every_pass_of_both_has_it(suite: BenchSuite) -> None:
    before = side(suite, lambda index: passed(True, quality={"survives": 1.0} if index < 6 else {}))
    after = side(suite, lambda index: passed(True, quality={"survives": 0.5} if index > 3 else {}))
    found = suite_changes(suite, PASSES, before, after)
    assert found.measures["quality/survives"].value == -0.5
    none = side(suite, lambda index: passed(True))
    assert "quality/survives" not in suite_changes(suite, PASSES, none, after).measures


def test_a_broken_promise_is_a_rate_over_all_passes(suite: BenchSuite) -> None:
    before = side(suite, lambda index: passed(True))
    after = side(suite, lambda index: passed(True, interaction={"promise_kept": float(index % 2)}))
    found = suite_changes(suite, PASSES, before, after)
    assert found.measures["interaction/promises_broken"].value == 0.5
    assert "interaction/promise_kept" not in found.measures


def test_a_side_that_lacks_a_pass_is_not_compared(suite: BenchSuite) -> None:
    whole = side(suite, lambda index: passed(True))
    part = {key: each for key, each in whole.items() if key != ("t3", 1)}
    with pytest.raises(
        SuiteError, match="candidate version lacks 1 of 24 passes over mined 1, first that of task t3"
    ):
        suite_changes(suite, PASSES, whole, part)
