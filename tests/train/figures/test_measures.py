"""Figures of tokens, from numbers that can be checked by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.base import StepStats
from ostinato.train.figures.measures import effective, measured, percentiles


def test_the_figures_of_four_tokens() -> None:
    double, half = math.log(2), -math.log(2)
    table = torch.tensor(
        [[0.0, 0, 0, 1.0], [0.0, 0, 0, 1.0], [double, 1, 2, 0.5], [half, 0, 2, 0.5]], dtype=torch.float64
    )
    stats = measured(table)
    assert stats.tokens == 4 and stats.ratio == pytest.approx((1 + 1 + 2 + 0.5) / 4) and stats.cut == 0.25
    assert stats.entropy == 0.75 and stats.mismatch is not None
    assert stats.mismatch.most == pytest.approx(double) and stats.mismatch.p50 == pytest.approx(double / 2)
    assert stats.effective == pytest.approx(4.5**2 / (4 * (1 + 1 + 4 + 0.25)))
    fresh, old = stats.gaps
    assert (fresh.gap, fresh.tokens, fresh.effective, fresh.mismatch.most) == (0, 2, 1.0, 0.0)
    assert (old.gap, old.tokens) == (2, 2) and old.effective == pytest.approx(2.5**2 / (2 * 4.25))


def test_without_tokens_they_are_those_of_no_step() -> None:
    assert measured(torch.empty(0, 4)) == StepStats()


@given(st.lists(st.floats(-900, 900), min_size=1, max_size=30), st.floats(-500, 500))
def test_the_effective_size_is_a_share_that_no_common_factor_changes(
    deltas: list[float], factor: float
) -> None:
    share = effective(np.array(deltas))
    assert 1 / len(deltas) - 1e-9 <= share <= 1 + 1e-9
    assert effective(np.array(deltas) + factor) == pytest.approx(share, rel=1e-6)


@given(st.integers(1, 50))
def test_one_token_with_all_the_weight_is_one_of_n(count: int) -> None:
    assert effective(np.array([0.0] + [-600.0] * (count - 1))) == pytest.approx(1 / count)


def test_ratios_beyond_a_float_are_reported_as_finite_numbers() -> None:
    stats = measured(torch.tensor([[5000.0, 1, 0, 0.0], [-5000.0, 1, 0, 0.0]], dtype=torch.float64))
    assert math.isfinite(stats.ratio) and stats.effective == 0.5


def test_percentiles_of_a_hundred_and_one_values() -> None:
    found = percentiles([float(i) for i in range(101)])
    assert (found.p50, found.p99, found.most) == (50.0, 99.0, 100.0)
