"""Baselines of a group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.objective.group import above_the_mean, above_the_others

rewards = st.lists(st.floats(-2, 2), min_size=1, max_size=20)


@given(rewards)
def test_the_mean_of_the_group_is_leave_one_out_scaled(group: list[float]) -> None:
    """A reward minus the mean of all is (1 - 1/G) times the reward minus the mean of the others."""
    share = 1 - 1 / len(group)
    scaled = [share * each for each in above_the_others(group)]
    assert above_the_mean(group) == pytest.approx(scaled, abs=1e-9)


@given(rewards)
def test_above_the_others_add_up_to_zero(group: list[float]) -> None:
    assert sum(above_the_others(group)) == pytest.approx(0, abs=1e-9)


@given(rewards, st.floats(-5, 5))
def test_a_bonus_for_everyone_changes_nothing(group: list[float], bonus: float) -> None:
    shifted = above_the_others([reward + bonus for reward in group])
    assert shifted == pytest.approx(above_the_others(group), abs=1e-9)


@given(rewards)
def test_no_std_twice_the_spread_is_twice_the_advantage(group: list[float]) -> None:
    doubled = above_the_others([2 * reward for reward in group])
    assert doubled == pytest.approx([2 * advantage for advantage in above_the_others(group)])


def test_a_group_that_agrees_has_no_advantage() -> None:
    assert above_the_others([0.7] * 8) == pytest.approx([0.0] * 8)
    assert above_the_others([]) == []
