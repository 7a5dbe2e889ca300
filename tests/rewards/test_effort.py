import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.rewards.effort import concave_effort

efforts = st.floats(0, 1e4)
curvatures = st.floats(0.05, 3)
bends = st.floats(0, 4)


@given(curvatures, bends)
def test_no_effort_is_free(k: float, q: float) -> None:
    assert concave_effort(0, k=k, q=q) == 0


@given(efforts, st.floats(0.01, 100), curvatures, bends)
def test_the_price_increases(x: float, more: float, k: float, q: float) -> None:
    assert concave_effort(x + more, k=k, q=q) >= concave_effort(x, k=k, q=q)


@given(efforts, st.floats(0.01, 100), curvatures, bends)
def test_the_price_is_concave(x: float, h: float, k: float, q: float) -> None:
    left, middle, right = (concave_effort(x + i * h, k=k, q=q) for i in range(3))
    assert middle - left >= right - middle - 1e-9 * max(1.0, right)


@given(efforts, curvatures, st.floats(1.01, 4))
def test_the_price_is_bounded_for_q_above_one(x: float, k: float, q: float) -> None:
    assert concave_effort(x, k=k, q=q) <= 1 / (k * (q - 1)) * (1 + 1e-12)


@given(efforts, curvatures, st.sampled_from([-1e-7, 1e-9, 1e-7]))
def test_the_limit_at_q_one_is_the_logarithm(x: float, k: float, off: float) -> None:
    assert concave_effort(x, k=k, q=1 + off) == pytest.approx(math.log1p(k * x) / k, rel=1e-5)


@given(efforts, curvatures)
def test_the_price_is_linear_at_q_zero(x: float, k: float) -> None:
    assert concave_effort(x, k=k, q=0) == pytest.approx(x, rel=1e-9, abs=1e-9)


@given(st.floats(0, 50), curvatures, bends)
def test_it_equals_the_published_form(x: float, k: float, q: float) -> None:
    if abs(q - 1) > 1e-3:
        plain = ((1 + k * x) ** (1 - q) - 1) / (k * (1 - q))
        assert concave_effort(x, k=k, q=q) == pytest.approx(plain, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("x", "k", "q"), [(-1, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_values_without_a_meaning_are_refused(x: float, k: float, q: float) -> None:
    with pytest.raises(ValueError, match="effort needs"):
        concave_effort(x, k=k, q=q)
