from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ostinato.deploy.outcomes import TaskOutcome, best_of, score


def outcomes(n: int, clusters: int, *, together: bool) -> list[TaskOutcome]:
    """Return outcomes of which half are solved: every other cluster as a whole, or half of each cluster."""
    return [
        TaskOutcome(
            task=str(index),
            split="seeds",
            cluster=str(index % clusters),
            solved=((index % clusters if together else index // clusters) % 2 == 0,),
        )
        for index in range(n)
    ]


def test_independent_tasks_have_wilsons_interval() -> None:
    interval = score(outcomes(100, 100, together=True))
    assert (interval.solve, interval.n) == (0.5, 100)
    assert (interval.low, interval.high) == (pytest.approx(0.404, abs=2e-3), pytest.approx(0.596, abs=2e-3))


def test_clusters_solved_as_a_whole_widen_the_interval_and_others_do_not_narrow_it() -> None:
    alone = score(outcomes(100, 100, together=True))
    whole, halves = (score(outcomes(100, 10, together=each)) for each in (True, False))
    assert whole.high - whole.low > 2 * (alone.high - alone.low)
    assert halves.high - halves.low == pytest.approx(alone.high - alone.low, rel=0.01)


def test_passes_over_one_task_count_as_one_task() -> None:
    once = [TaskOutcome(task=str(i), split="s", cluster=str(i), solved=(i < 30,)) for i in range(60)]
    twice = [TaskOutcome(task=str(i), split="s", cluster=str(i), solved=(i < 30,) * 2) for i in range(60)]
    assert score(once) == replace(score(twice), k=1, best=None)


def test_tasks_never_solved_are_not_proven_impossible() -> None:
    never = [TaskOutcome(task=str(i), split="s", cluster="one", solved=(False,)) for i in range(40)]
    assert score(never).solve == 0.0 and score(never).high > 0.05


def test_best_of_k_is_the_share_of_subsets_that_solve() -> None:
    passes = np.array([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=float)
    for k in range(1, 6):
        expected = [np.mean([any(some) for some in combinations(row, k)]) for row in passes]
        assert np.allclose(best_of(passes, k), expected)
    with pytest.raises(ValueError, match="best of 6 needs"):
        best_of(passes, 6)


def test_the_best_of_all_passes_stands_beside_the_mean() -> None:
    """With one pass there is no best; a task with more passes than another counts with K of them."""

    def outcome(task: str, *solved: bool) -> TaskOutcome:
        return TaskOutcome(task=task, split="seeds", cluster=task, solved=solved)

    found = score([outcome("a", True, False), outcome("b", False, False), outcome("c", True, True)])
    assert (found.k, found.best, found.solve) == (2, pytest.approx(2 / 3), 0.5)
    assert "best of 2: 67%" in found.words
    uneven = score([outcome("a", True, False, False), outcome("b", False, False)])
    assert uneven.k == 2 and uneven.best == pytest.approx((2 / 3) / 2)
    single = score([outcome("a", True), outcome("b", False)])
    assert (single.k, single.best, single.words) == (1, None, "50% of 2")
