"""k1: the published identities of the three estimators, and its credit in groups, trees and kinds."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ostinato.train.objective.group import above_the_others
from ostinato.train.objective.influence import person_advantages, person_weights
from ostinato.train.objective.k1 import k1_advantages, mean_k1, trees_of
from ostinato.types import Group, Sample

MakeSample = Callable[..., Sample]
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
Floats = NDArray[np.float64]


def moments(estimator: Callable[[Floats], Floats], mu: float) -> tuple[float, float]:
    """Mean and variance under q = N(0, 1) of an estimator of KL(q | p), p = N(mu, 1), by quadrature."""
    log_ratio = mu * POINTS - mu**2 / 2
    """log p - log q at the points"""
    values, weights = estimator(log_ratio), WEIGHTS / math.sqrt(2 * math.pi)
    mean = float((weights * values).sum())
    return mean, float((weights * (values - mean) ** 2).sum())


def k1(log_ratio: Floats) -> Floats:
    return -log_ratio


def k2(log_ratio: Floats) -> Floats:
    return log_ratio**2 / 2


def k3(log_ratio: Floats) -> Floats:
    return np.exp(log_ratio) - 1 - log_ratio


@given(st.floats(-2, 2))
def test_unit_gaussians_have_the_published_moments(mu: float) -> None:
    """KL = mu^2/2; Var k1 = mu^2, Var k3 = e^{mu^2} - 1 - mu^2, both without bias; k2 is off by mu^4/8."""
    divergence = mu**2 / 2
    assert moments(k1, mu) == pytest.approx((divergence, mu**2), abs=1e-9)
    mean, variance = moments(k3, mu)
    assert mean == pytest.approx(divergence, abs=1e-9)
    assert variance == pytest.approx(math.exp(mu**2) - 1 - mu**2, rel=1e-6, abs=1e-9)
    assert moments(k2, mu)[0] - divergence == pytest.approx(mu**4 / 8, abs=1e-9)


def test_k1_varies_less_than_k3_above_a_divergence_of_0_628() -> None:
    """Where e^x - 1 - x = x, x = mu^2 = 1.2564, hence KL = 0.628 nats."""
    for divergence, k1_is_better in ((0.627, False), (0.629, True)):
        mu = math.sqrt(2 * divergence)
        assert (moments(k1, mu)[1] < moments(k3, mu)[1]) == k1_is_better


def group_of(make_sample: MakeSample, *sessions: str, id: str = "g", **fields: Any) -> Group:
    samples = tuple(make_sample(session=session, advantage=0.0) for session in sessions)
    given_fields = {"rewards": (0.0,) * len(sessions)} | fields
    return Group(id=id, prompt=id, samples=samples, **given_fields)


def test_in_a_group_it_is_compared_as_the_reward_is(make_sample: MakeSample) -> None:
    group = group_of(make_sample, "a", "b", "c")
    found = k1_advantages([group], {"a": 3.0, "b": 0.0, "c": 0.0}, above_the_others)
    assert found == {"a": 3.0, "b": -1.5, "c": -1.5}
    assert mean_k1([group], {"a": 3.0, "b": 0.0, "c": 0.0}) == 1.0


def test_all_segments_of_a_session_share_one_advantage(make_sample: MakeSample) -> None:
    """A chain of summaries is several rows of one session, and is credited as a whole."""
    group = group_of(make_sample, "a", "a", "b", rewards=(0.0, 0.0))
    assert trees_of(group) == (("a",), ("b",))
    assert k1_advantages([group], {"a": 1.0, "b": 3.0}, above_the_others) == {"a": -2.0, "b": 2.0}


def test_a_session_without_a_trained_token_has_no_k1_and_is_compared_with(make_sample: MakeSample) -> None:
    group = group_of(make_sample, "a", rewards=(0.0, 0.0), trees=(("a",), ("untrainable",)))
    found = k1_advantages([group], {"a": 2.0}, above_the_others)
    assert found == {"a": 2.0, "untrainable": -2.0}


def test_forked_sessions_carry_the_k1_of_their_trunk(make_sample: MakeSample) -> None:
    group = group_of(make_sample, "t", "x", "y", "l", rewards=(0.0, 0.0), trees=(("t", "x", "y"), ("l",)))
    k1_of = {"t": 1.0, "x": 2.0, "y": 0.0, "l": 0.0}
    found = k1_advantages([group], k1_of, above_the_others)
    assert found == {"t": 2.0, "x": 1.0, "y": -1.0, "l": -2.0}
    assert mean_k1([group], k1_of) == 1.0


def test_groups_of_one_are_compared_within_their_kind(make_sample: MakeSample) -> None:
    groups = [
        group_of(make_sample, name, id=name, kind=kind)
        for name, kind in (("a", "fix"), ("b", "fix"), ("c", "question"), ("d", "question"))
    ]
    found = k1_advantages(groups, {"a": 1.0, "b": 0.0, "c": 5.0, "d": 7.0}, above_the_others)
    assert found == {"a": 1.0, "b": -1.0, "c": -2.0, "d": 2.0}


def test_a_person_who_floods_the_batch_has_no_more_of_k1_than_of_the_reward(make_sample: MakeSample) -> None:
    """One person brings 60 sessions of 160, all rewards are equal, and each session has a k1 of 0 or 1."""
    people = ["ada"] * 60 + [f"p{number}" for number in range(100)]
    weights = person_weights(people, 0.02)
    groups = [
        group_of(make_sample, f"s{i}", id=f"g{i}", kind="fix", person=person, weight=weight)
        for i, (person, weight) in enumerate(zip(people, weights.tolist(), strict=True))
    ]
    k1_of = {f"s{i}": float(i % 2) for i in range(160)}
    found = k1_advantages(groups, k1_of, above_the_others)
    expected = person_advantages(list(k1_of.values()), people, ["fix"] * 160, weights)
    assert list(found.values()) == pytest.approx(expected.tolist())
    sizes = [abs(each) for each in found.values()]
    assert sum(sizes[:60]) < 0.025 * sum(sizes)


def test_a_fork_that_was_not_recorded_is_refused(make_sample: MakeSample) -> None:
    group = group_of(make_sample, "t", "x", "y", rewards=(0.0,))
    with pytest.raises(ValueError, match="3 sessions for 1 rewards"):
        trees_of(group)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused_before_anything_is_written(
    make_sample: MakeSample, bad: float
) -> None:
    group = group_of(make_sample, "a", "b")
    with pytest.raises(ValueError, match="group g: a reward is a finite number"):
        replace(group, rewards=(bad, 1.0))
    with pytest.raises(ValueError, match="group g: a weight is above 0 and 1 at most"):
        replace(group, weight=abs(bad))
    with pytest.raises(ValueError, match="need as many trees"):
        replace(group, trees=(("a",),))
