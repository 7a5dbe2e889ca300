import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.rewards.parts.effort import EffortPrice, concave_effort
from ostinato.rewards.parts.work import Effort

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


@pytest.mark.parametrize(("x", "k", "q"), [(-1, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_values_without_a_meaning_are_refused(x: float, k: float, q: float) -> None:
    with pytest.raises(ValueError, match="effort needs"):
        concave_effort(x, k=k, q=q)


@given(st.floats(0, 1e3), bends, st.sampled_from([1e-9, 1e-12, 1e-15]))
def test_the_limit_at_k_zero_is_the_effort_itself(x: float, q: float, k: float) -> None:
    assert concave_effort(x, k=0, q=q) == x
    assert concave_effort(x, k=k, q=q) == pytest.approx(x, rel=1e-5, abs=1e-9)


@given(efforts, curvatures, st.sampled_from([1e-9, 1e-12]))
def test_the_limit_at_q_zero_is_the_effort_itself(x: float, k: float, q: float) -> None:
    assert concave_effort(x, k=k, q=q) == pytest.approx(x, rel=1e-6, abs=1e-9)


COUNTS = [each.name for each in fields(Effort)]
NOTHING = Effort(**dict.fromkeys(COUNTS, 0))
counts = st.builds(Effort, **{name: st.integers(0, 10_000) for name in COUNTS})


@given(counts, st.sampled_from(COUNTS), st.integers(1, 500))
def test_each_of_the_six_counts_costs(effort: Effort, name: str, more: int) -> None:
    """The exploit: what costs nothing is where the effort goes."""
    price = EffortPrice()
    assert len(COUNTS) == 6 and price.cost(NOTHING) == 0
    assert price.x(replace(effort, **{name: getattr(effort, name) + more})) > price.x(effort)


@given(counts, st.integers(0, 5000))
def test_moving_thoughts_into_comments_or_the_last_message_saves_nothing(effort: Effort, n: int) -> None:
    price = EffortPrice()
    thought = replace(effort, thinking=effort.thinking + n)
    commented = replace(effort, calls_text=effort.calls_text + n)
    said = replace(effort, final=effort.final + n)
    assert price.cost(thought) <= min(price.cost(commented), price.cost(said)) + 1e-12


def test_parallel_calls_are_cheaper_than_turns_of_their_own() -> None:
    price = EffortPrice()
    together, apart = replace(NOTHING, turns=1, calls=3), replace(NOTHING, turns=3, calls=3)
    assert price.cost(together) < price.cost(apart)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"calls_text": 0.001}, "effort.calls_text is 0.001 and effort.thinking 0.002"),
        ({"final": 0.0}, "no text cheaper than thinking"),
        ({"turns": -1.0}, "effort.turns is -1.0"),
        ({"q": math.nan}, "effort.q is nan"),
    ],
)
def test_a_price_that_invites_hiding_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EffortPrice(**wrong)
