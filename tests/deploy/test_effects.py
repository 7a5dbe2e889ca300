"""The two means of a trial, from arrays of users."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.deploy.effects import MIN_USERS, effect, heaviest


def draw_users(draw: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    users = draw(st.integers(4, 12))
    counts = np.array(draw(st.lists(st.integers(0, 9), min_size=users, max_size=users)), dtype=float)
    values = np.array(draw(st.lists(st.floats(-5, 5), min_size=users, max_size=users)))
    challenger = np.arange(users) % 2 == 0
    return counts, values * counts, challenger


@given(st.data())
def test_looks_computed_together_equal_looks_computed_one_by_one(data: st.DataObject) -> None:
    counts, sums, challenger = draw_users(data.draw)
    halves = np.stack([counts // 2, counts])
    totals = np.stack([sums / 2, sums])
    none = np.full(len(counts), np.nan)
    both = effect(halves, totals, challenger, none)
    for index in (0, 1):
        one = effect(halves[index], totals[index], challenger, none)
        assert one.value == pytest.approx(both.value[index], nan_ok=True)
        assert one.error == pytest.approx(both.error[index], nan_ok=True)


def test_a_busy_user_counts_once_by_user_and_as_often_as_they_came_by_session() -> None:
    counts = np.array([1.0] * 19 + [10_000.0] + [1.0] * 20)
    sums = np.array([0.0] * 19 + [10_000.0] + [0.0] * 20)
    challenger, none = np.arange(40) < 20, np.full(40, np.nan)
    result = effect(counts, sums, challenger, none)
    assert (
        result.value == pytest.approx(1 / 20) and result.value < 2 * result.error
    )  # one user decides nothing
    assert effect(counts, sums, challenger, none, by_session=True).value == pytest.approx(10_000 / 10_019)


def test_the_heaviest_are_a_tenth_or_as_active_as_its_last() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        counts = rng.poisson(rng.uniform(0.5, 9), (2, rng.integers(20, 200))).astype(float)
        challenger = rng.random(counts.shape[1]) < 0.5
        both = heaviest(counts, challenger)
        assert (heaviest(counts[0], challenger) == both[0]).all()
        for mine, kept in zip(counts, both, strict=True):
            assert ((kept == mine) | (kept == 0)).all()
            for side in (challenger, ~challenger):
                left_out, chosen = mine[side & (kept == 0)], kept[side & (kept > 0)]
                present = int((mine[side] > 0).sum())
                assert len(chosen) >= min(present, max(MIN_USERS, present / 10))
                assert not len(chosen) or left_out.max(initial=0.0) < chosen.min()
    assert (heaviest(np.full(50, 3.0), np.arange(50) < 25) == 3).all(), "nobody is heavier than another"


def test_a_small_arm_in_which_nothing_happened_proves_nothing() -> None:
    counts, challenger = np.full(50, 4.0), np.arange(50) < 10
    sums = np.where(np.isin(np.arange(50), [12, 20, 30, 44]), 1.0, 0.0)
    result = effect(counts, sums, challenger, np.full(50, np.nan))
    assert result.value < 0 and result.value + 1.96 * result.error > 0
