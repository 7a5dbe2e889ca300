import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from ostinato.deploy.statistics import (
    Estimate,
    anytime,
    clustered,
    half_width,
    holm,
    interval,
    minus,
    relative,
    sample_ratio,
    tail,
    wilson,
)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 500))
    return draw(st.integers(0, n)), n


def test_wilson_reproduces_the_published_example() -> None:
    score = wilson(15, 148)  # Newcombe 1998
    assert (score.low, score.high) == (pytest.approx(0.0624, abs=1e-4), pytest.approx(0.1605, abs=1e-4))


@given(counts())
def test_wilson_holds_the_estimate_and_stays_in_the_unit_interval(count: tuple[int, int]) -> None:
    score = wilson(*count)
    assert 0 <= score.low <= score.solve <= score.high <= 1
    assert score.low < score.high


def test_wilson_without_trials_is_the_whole_unit_interval() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)


def test_wilson_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson(3, 2)


def ones(n: int) -> np.ndarray:
    return np.ones(n)


def test_without_clusters_the_error_is_the_ordinary_one() -> None:
    values = np.array([0.0, 1.0, 4.0, 7.0])
    estimate = clustered(values, ones(4))
    assert estimate.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(4))
    assert estimate.freedom == pytest.approx(3)


def test_repeating_each_value_changes_nothing() -> None:
    once = clustered([0.0, 1.0, 4.0], ones(3))
    thrice = clustered([0.0, 3.0, 12.0], 3 * ones(3))
    assert thrice.error == pytest.approx(once.error) and thrice.freedom == once.freedom


def test_the_error_is_the_jackknife_over_clusters() -> None:
    sums, weights = np.array([3.0, 1.0, 9.0, 2.0]), np.array([4.0, 1.0, 6.0, 2.0])
    left = [(sums.sum() - s) / (weights.sum() - w) for s, w in zip(sums, weights, strict=True)]
    mean = sums.sum() / weights.sum()
    expected = math.sqrt(3 / 4 * sum((each - mean) ** 2 for each in left))
    assert clustered(sums, weights).error == pytest.approx(expected)


def test_clusters_of_weight_zero_do_not_count() -> None:
    some = clustered([1.0, 2.0, 4.0], [1.0, 2.0, 1.0])
    more = clustered([1.0, 2.0, 0.0, 4.0], [1.0, 2.0, 0.0, 1.0])
    assert (some.value, some.error, some.freedom) == (more.value, more.error, more.freedom)


def test_one_user_has_no_bound() -> None:
    estimate = clustered([3.0], [2.0])
    assert estimate.value == 1.5 and math.isinf(float(half_width(estimate, 0.05)))
    assert math.isinf(float(half_width(clustered([0.0], [0.0]), 0.05)))


def test_unequal_clusters_count_as_fewer() -> None:
    equal, unequal = clustered(ones(10), ones(10)), clustered(ones(10), [1.0] * 9 + [50.0])
    assert equal.freedom == pytest.approx(9) and unequal.freedom < 2


def test_a_difference_has_welchs_degrees_of_freedom() -> None:
    a = Estimate(value=np.array(2.0), error=np.array(3.0), freedom=np.array(9.0))
    b = Estimate(value=np.array(0.5), error=np.array(4.0), freedom=np.array(4.0))
    estimate = minus(a, b)
    assert (estimate.value, estimate.error) == (1.5, 5.0)
    assert estimate.freedom == pytest.approx(25**2 / (9**2 / 9 + 16**2 / 4))


NORMAL = Estimate(value=np.array(0.0), error=np.array(1.0), freedom=np.array(1e9))


def test_a_bound_for_one_look_is_students() -> None:
    assert half_width(NORMAL, 0.05) == pytest.approx(1.645, abs=1e-3)
    few = Estimate(value=np.array(0.0), error=np.array(1.0), freedom=np.array(4.0))
    assert half_width(few, 0.05) == pytest.approx(2.132, abs=1e-3)


def test_a_bound_for_all_looks_is_wide_early_and_closes_at_the_end() -> None:
    assert half_width(NORMAL, 0.05, 1.0) == pytest.approx(1.960, abs=1e-3)
    assert half_width(NORMAL, 0.05, 0.25) == pytest.approx(2 * 1.960, abs=1e-3)


def test_a_brownian_motion_crosses_the_bound_as_often_as_stated() -> None:
    rng = np.random.default_rng(5)
    looks = np.arange(1, 801) / 800
    paths = np.cumsum(rng.normal(0, math.sqrt(1 / 800), (4000, 800)), axis=1)
    z = paths / np.sqrt(looks)
    estimate = Estimate(value=z, error=np.ones_like(z), freedom=np.full_like(z, 1e9))
    crossed = (z > half_width(estimate, 0.10, looks)).any(axis=1).mean()
    assert 0.08 < crossed < 0.11
    assert (z > 1.2816).any(axis=1).mean() > 0.4  # a bound for one look is crossed far more often


def test_the_interval_and_the_p_value_agree() -> None:
    estimate = Estimate(value=np.array(0.5), error=np.array(0.3), freedom=np.array(7.0))
    for level in (0.01, 0.05, 0.06, 0.2):
        assert (interval(estimate, level).low > 0) == (tail(estimate, 0.0) < level)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_holm_rejects_all_that_bonferroni_does_and_in_order(p_values: list[float], level: float) -> None:
    rejected = holm(p_values, level)
    for p, yes in zip(p_values, rejected, strict=True):
        assert yes or p > level / len(p_values)
        assert not yes or p <= level
    worst = max((p for p, yes in zip(p_values, rejected, strict=True) if yes), default=-1.0)
    assert all(p >= worst for p, yes in zip(p_values, rejected, strict=True) if not yes)


def test_a_sound_ratio_of_arms_is_seldom_doubted_however_often_one_looks() -> None:
    rng = np.random.default_rng(2)
    doubted = 0
    for _ in range(400):
        challengers = np.cumsum(rng.random(80) < 0.5)
        doubted += any(sample_ratio(int(challengers[n - 1]), n, 0.5) > 100 for n in range(1, 81))
    assert doubted / 400 <= 0.02


def test_the_loss_of_a_third_of_an_arm_is_found() -> None:
    assert sample_ratio(120, 400, 0.5) > 100
    assert sample_ratio(100_000, 1_000_000, 0.5) > 100
    assert binom.cdf(29, 40, 0.5) > 0.99 and sample_ratio(29, 40, 0.5) < 100  # one in 160: not proof


def estimate(value: float, error: float) -> Estimate:
    return Estimate(value=np.array(value), error=np.array(error), freedom=np.array(99.0))


def test_an_interval_without_a_planned_end_holds_at_every_look() -> None:
    """A look after each of 1,000 observations, in 400 runs without any effect; nominal 5 %."""
    rng = np.random.default_rng(3)
    means = np.cumsum(rng.normal(size=(400, 1000)), axis=1) / np.arange(1, 1001)
    missed = 0
    for run in means:
        looks = (
            anytime(
                Estimate(value=np.array(run[n - 1]), error=np.array(n**-0.5), freedom=np.array(n)), 0.05, 0.1
            )
            for n in range(20, 1001, 20)
        )
        missed += any(not each.low <= 0 <= each.high for each in looks)
    assert missed / 400 <= 0.06
    half = anytime(estimate(0.0, 0.1), 0.05, 0.1).high
    assert 0.25 < half < 0.32, "about three errors where it is narrowest"
    assert anytime(estimate(0.0, np.inf), 0.05, 0.1).high == np.inf


def test_a_relative_change_and_its_inverse_have_inverse_bounds_that_hold() -> None:
    rng, held = np.random.default_rng(4), 0
    for _ in range(200):
        new, old = rng.gamma(2.0, 0.55, 150), rng.gamma(2.0, 0.5, 150)  # the mean is a tenth higher
        means = [clustered(each, np.ones(150)) for each in (new, old)]
        change, back = relative(*means, 0.025, 1.0), relative(*means[::-1], 0.025, 1.0)
        assert (1 + change.low) * (1 + back.high) == pytest.approx(1.0)
        assert change.estimate == pytest.approx(new.mean() / old.mean() - 1)
        held += change.low < 0.1 < change.high
    assert held >= binom.ppf(0.001, 200, 0.95)
