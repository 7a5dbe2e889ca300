import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.deploy.statistics import (
    Clock,
    Estimate,
    TooFewError,
    clustered_mean,
    difference,
    minus,
    paired_difference,
    wilson,
    without_covariate,
)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 500))
    return draw(st.integers(0, n)), n


def test_wilson_is_the_published_example() -> None:
    score = wilson(15, 148)  # Newcombe 1998
    assert (score.low, score.high) == (pytest.approx(0.0624, abs=1e-4), pytest.approx(0.1605, abs=1e-4))


@given(counts())
def test_wilson_holds_the_estimate_and_stays_in_the_unit_interval(count: tuple[int, int]) -> None:
    score = wilson(*count)
    assert 0 <= score.low <= score.solve <= score.high <= 1
    assert score.low < score.high


def test_wilson_without_trials_knows_nothing() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)


def test_wilson_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson(3, 2)


def test_newcombe_is_the_published_example() -> None:
    change = difference(wilson(48, 80), wilson(56, 70))  # 56/70 - 48/80, method 10
    assert change.estimate == pytest.approx(0.2)
    assert (change.low, change.high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


def test_paired_newcombe_is_the_published_example() -> None:
    current = [True] * 36 + [False] * 14  # 36 both, 12 only the candidate, 2 only the current, 0 neither
    candidate = [True] * 36 + [True] * 12 + [False] * 2
    current = [True] * 36 + [False] * 12 + [True] * 2
    change = paired_difference(current, candidate)
    assert change.estimate == pytest.approx(0.2)
    assert (change.low, change.high) == (pytest.approx(0.0569, abs=2e-3), pytest.approx(0.3404, abs=2e-3))


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_the_same_outcomes_differ_by_nothing(outcomes: list[bool]) -> None:
    change = paired_difference(outcomes, outcomes)
    assert change.estimate == 0 and change.low <= 0 <= change.high


def test_pairing_narrows() -> None:
    current = [i % 2 == 0 for i in range(100)]
    candidate = [*current[:-4], True, True, True, True]
    paired = paired_difference(current, candidate)
    apart = difference(wilson(sum(current), 100), wilson(sum(candidate), 100))
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)


@given(counts(), counts())
def test_a_difference_reverses_with_its_sides(a: tuple[int, int], b: tuple[int, int]) -> None:
    there, back = difference(wilson(*a), wilson(*b)), difference(wilson(*b), wilson(*a))
    assert there.low == pytest.approx(-back.high) and there.estimate == pytest.approx(-back.estimate)


def test_without_clusters_the_error_is_the_ordinary_one() -> None:
    values = [0.0, 1.0, 4.0, 7.0]
    estimate = clustered_mean(values, ["a", "b", "c", "d"])
    assert estimate.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(4))


def test_repeating_each_users_value_adds_no_knowledge() -> None:
    once = clustered_mean([0.0, 1.0, 4.0], ["a", "b", "c"])
    thrice = clustered_mean([0.0, 1.0, 4.0] * 3, ["a", "b", "c"] * 3)
    assert thrice.error == pytest.approx(once.error)
    assert (thrice.n, thrice.clusters) == (9, 3)


def test_one_user_gives_no_error_estimate() -> None:
    with pytest.raises(TooFewError, match="at least two"):
        clustered_mean([1.0, 2.0], ["ada", "ada"])


def test_width_is_that_of_the_paper() -> None:
    n, alpha = 4000, 0.05
    rho = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / n
    plain = math.sqrt(
        2 * (n * rho + 1) / (n**2 * rho) * math.log(math.sqrt(n * rho + 1) / alpha)
    ) * math.sqrt(n)
    assert Clock(horizon=n).width(n) == pytest.approx(plain)
    assert 1.4 < Clock(horizon=n).width(n) / 1.96 < 1.7


def test_an_interval_is_wider_away_from_the_horizon_and_with_few_users() -> None:
    clock = Clock(horizon=1000)
    assert clock.width(1000) < clock.width(100) and clock.width(1000) < clock.width(100_000)
    few, many = (Estimate(value=0.0, error=1.0, n=1000, clusters=k) for k in (8, 800))
    assert clock.interval(few).high > clock.interval(many).high


def peek(rng: np.random.Generator, clock: Clock, *, users: int = 40, looks: int = 12) -> tuple[bool, bool]:
    """One A/A test looked at `looks` times: did the sequence, did a plain interval, ever exclude zero?"""
    names = [f"u{i}" for i in range(users)]
    habits = rng.normal(0.6, 0.15, (2, users))
    values: tuple[list[float], list[float]] = ([], [])
    sequence = plain = False
    for look in range(1, looks + 1):
        for arm in (0, 1):
            values[arm].extend((rng.random((2, users)) < habits[arm]).astype(float).ravel())
        change = minus(*(clustered_mean(values[arm], names * (2 * look)) for arm in (1, 0)))
        interval = clock.interval(change)
        sequence |= interval.low > 0 or interval.high < 0
        plain |= abs(change.value) > 1.96 * change.error
    return sequence, plain


def test_coverage_under_peeking_with_users_that_differ() -> None:
    rng = np.random.default_rng(7)
    clock = Clock(horizon=40 * 2 * 2 * 12)
    runs = [peek(rng, clock) for _ in range(300)]
    wrong, wrong_plain = (sum(run[i] for run in runs) / len(runs) for i in (0, 1))
    assert wrong <= 0.05
    assert wrong_plain > 0.10  # what the sequence is there to prevent


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=2, max_size=40),
)
def test_taking_a_covariate_out_keeps_the_mean_and_never_widens(pairs: list[tuple[float, float]]) -> None:
    values, covariates = [value for value, _ in pairs], [covariate for _, covariate in pairs]
    left = without_covariate(values, covariates)
    assert np.mean(left) == pytest.approx(np.mean(values), abs=1e-6)
    assert np.std(left) <= np.std(values) + 1e-6


def test_a_covariate_that_says_all_leaves_nothing() -> None:
    assert without_covariate([1.0, 3.0, 5.0], [0.0, 1.0, 2.0]) == pytest.approx([3.0, 3.0, 3.0])


def test_without_a_covariate_nothing_changes() -> None:
    assert without_covariate([1.0, 2.0], [0.0, 0.0]) == [1.0, 2.0]
    assert without_covariate([0.0, 0.0, 1.0], [0.1, 0.1, 0.1]) == [0.0, 0.0, 1.0]  # whose mean is not 0.1
