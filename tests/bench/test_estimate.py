import numpy as np
import pytest
from scipy import stats

from ostinato.bench import estimate
from ostinato.deploy.outcomes import of_clusters
from ostinato.deploy.statistics import Estimate, half_width


def test_without_clusters_it_is_the_t_interval_of_scipy() -> None:
    values = np.random.default_rng(0).normal(3, 2, 25)
    _, low, high = estimate.quantity(values, np.eye(25))
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert np.allclose((low, high), (expected.low, expected.high))
    found = estimate.mean_difference(values, np.eye(25))
    assert np.isclose(estimate.two_sided(found), stats.ttest_1samp(values, 0).pvalue)


def test_equal_clusters_are_worth_their_means() -> None:
    values = np.random.default_rng(1).normal(0, 1, (6, 10)) + np.arange(6)[:, None]
    clusters = estimate.member([str(index) for index in range(6) for _ in range(10)])
    _, low, high = estimate.quantity(values.ravel(), clusters)
    expected = stats.ttest_1samp(values.mean(axis=1), 0).confidence_interval(0.95)
    assert np.allclose((low, high), (expected.low, expected.high))


def test_an_interval_of_a_share_is_wilsons_for_many_alike_tasks() -> None:
    values = np.array([1.0] * 300 + [0.0] * 700)
    _, low, high = estimate.share(values, np.eye(1000))
    expected = stats.binomtest(300, 1000).proportion_ci(method="wilson")
    assert np.allclose((low, high), (expected.low, expected.high), atol=1e-3)
    _, low, high = estimate.share(np.zeros(40), estimate.member(["a", "b", "c", "d"] * 10))
    assert low == 0 and 0.5 < high < 1  # four repositories without a success prove little


def test_agreement_on_every_task_is_no_proof() -> None:
    found = estimate.difference(np.zeros(30), estimate.member([str(index // 3) for index in range(30)]))
    assert found.value == 0 and half_width(found, 0.025) > 0.03
    assert estimate.two_sided(found) == 1


def test_what_is_detectable_grows_as_the_usual_formula_with_many_clusters() -> None:
    assert estimate.factor(1e6) == pytest.approx(stats.norm.ppf(0.975) + stats.norm.ppf(0.8), rel=1e-3)
    assert estimate.factor(5.0) > estimate.factor(20.0) > estimate.factor(1e6)
    alone = Estimate(value=np.float64(0), error=np.float64(np.inf), freedom=np.float64(1))  # type: ignore[arg-type]
    assert estimate.detectable(alone, np.zeros(3)) == np.inf
    assert estimate.factor(5.0, 0.3) < estimate.factor(5.0) < estimate.factor(5.0, -0.3)


def test_the_detectable_difference_is_detected_as_often_as_it_says() -> None:
    rng, runs, groups = np.random.default_rng(2), 4000, 12
    factor = estimate.factor(groups - 1)

    def errors() -> np.ndarray:
        return np.asarray(rng.normal(0, 1, (runs, groups)).std(axis=1, ddof=1) / np.sqrt(groups))

    values = rng.normal(0, 1, (runs, groups)) + (factor * errors())[:, None]
    detected = np.asarray(stats.ttest_1samp(values, 0, axis=1).pvalue) <= 0.05
    assert detected.mean() == pytest.approx(0.8, abs=0.02)


def test_a_difference_that_leans_on_its_error_is_detected_as_often_as_it_says_too() -> None:
    """Losses that are rare and large: where fewer of them are drawn, the error is smaller as well."""
    rng, runs = np.random.default_rng(4), 4000
    clusters = estimate.member([str(index // 10) for index in range(120)])
    noise = 1 - rng.exponential(1, (runs, 120))
    found = of_clusters(noise - 0.5, clusters)
    leans = estimate.lean(found, noise - 0.5)
    assert leans.shape == (runs,) and leans.mean() == pytest.approx(0.43, abs=0.06)

    def detected(factor: float) -> float:
        shifted = of_clusters(noise - (factor * np.roll(found.error, 1))[:, None], clusters)
        return float((estimate.two_sided(shifted) <= estimate.LEVEL).mean())

    assert detected(estimate.factor(11.0)) > 0.82
    assert detected(estimate.factor(11.0, float(leans.mean()))) == pytest.approx(0.8, abs=0.02)
    same = estimate.lean(of_clusters(np.zeros(120), clusters), np.zeros(120))
    assert same == 0  # two versions that agree everywhere lean on nothing


def test_intervals_cover_on_simulated_suites_of_few_repositories() -> None:
    rng, suites = np.random.default_rng(3), 600
    clusters = estimate.member([str(index // 15) for index in range(120)])
    logit = rng.normal(0, 0.8, (suites, 8)) @ clusters.T + rng.normal(0, 1.2, (suites, 120))
    passes = rng.random((suites, 120, 4)) < 1 / (1 + np.exp(-logit[..., None]))
    _, low, high = estimate.share(passes.mean(axis=-1), clusters)
    assert ((low <= 0.5) & (high >= 0.5)).mean() >= 0.93
