"""Covers fuzz/arrival.py and fuzz/rollout_ids.py: what the comparison with TRL reads from its runs."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from fuzz.arrival import Curve, Median, Ratio, median, ratio
from fuzz.rollout_ids import RESULT_END, sampled_spans
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.profiles.profile import CORE
from ostinato.model.families import HermesRenderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.tasks.teaching.habits import call

RATES = st.lists(st.floats(0, 1), min_size=2, max_size=9)


def curve(*solved: float, step: float = 10.0) -> Curve:
    return Curve(spent=tuple(step * i for i in range(len(solved))), solved=solved)


def test_an_arrival_lies_on_the_line_between_two_points() -> None:
    assert curve(0.2, 0.4, 0.6).arrival(0.5) == pytest.approx(15.0)
    assert curve(0.2, 0.4, 0.6).arrival(0.1) == 0.0


def test_a_dip_is_levelled_before_anything_is_read() -> None:
    """The first peak of a noisy curve is no arrival: 50, 30 and 40 % are as good as 40 % three times."""
    noisy = curve(0.2, 0.5, 0.3, 0.4, 0.8)
    assert noisy.rising == pytest.approx((0.2, 0.4, 0.4, 0.4, 0.8))
    assert noisy.arrival(0.5) == pytest.approx(32.5)


@given(RATES, st.floats(0.01, 0.99))
def test_the_levelled_curve_rises_and_keeps_its_mean(rates: list[float], target: float) -> None:
    levelled = curve(*rates).rising
    assert all(after >= before - 1e-12 for before, after in pairwise(levelled))
    assert sum(levelled) == pytest.approx(sum(rates))
    arrived = curve(*rates).arrival(target)
    assert (arrived is None) == (levelled[-1] < target)
    assert arrived is None or 0 <= arrived <= 10.0 * (len(rates) - 1)


@given(RATES, st.floats(0.01, 0.99))
def test_a_side_that_spends_three_times_as_much_has_a_ratio_of_three(rates: list[float], aim: float) -> None:
    found = ratio(curve(*rates, step=30.0), curve(*rates), aim)
    arrived = curve(*rates).arrival(aim)
    if arrived is None or arrived == 0.0:
        assert found is None
    else:
        assert found is not None
        assert found.low == pytest.approx(3.0)
        assert found.high == found.low


def test_a_run_that_never_arrives_bounds_the_ratio_on_one_side() -> None:
    arrives, never = curve(0.2, 0.6), curve(0.2, 0.3, 0.3)
    assert ratio(never, arrives, 0.4) == Ratio(low=pytest.approx(4.0), high=math.inf)
    assert ratio(arrives, never, 0.4) == Ratio(low=0.0, high=pytest.approx(0.25))
    assert ratio(never, never, 0.4) is None


def test_a_median_says_what_is_censored() -> None:
    exact, censored = Ratio(low=2.0, high=2.0), Ratio(low=5.0, high=math.inf)
    assert median([exact, exact, exact]) == Median(least=2.0, most=2.0, low=2.0, high=2.0, n=3, censored=0)
    some = median([exact, exact, censored])
    assert some is not None
    assert (some.least, some.most, some.low, some.high, some.censored) == (2.0, 2.0, 2.0, math.inf, 1)
    two = median([exact, censored])
    assert two is not None
    assert (two.least, two.most) == (3.5, math.inf)
    assert median([]) is None


def test_points_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="in order"):
        Curve(spent=(0.0, 2.0, 2.0), solved=(0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match="for each point"):
        Curve(spent=(0.0,), solved=())


@pytest.fixture(scope="module")
def renderer() -> HermesRenderer:
    literals = skeletons(CORE.system, CORE.tools)
    text = ["def add(a, b):\n    return a - b\n", "fix calc.py", "F. assert 1 == 2"] * 20
    return HermesRenderer(Tokenizer.train(text, 420, literals))


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_row_is_split_where_its_turns_were_sampled(renderer: HermesRenderer, turns: int, cut: bool) -> None:
    said: list[Sequence[int]] = [
        [*renderer.tokenizer.encode(call("read", path="calc.py")), renderer.stop_ids[0]]
        for _ in range(turns - 1)
    ]
    last = renderer.tokenizer.encode("fixed calc.py")
    said.append(last if cut else [*last, renderer.stop_ids[0]])
    result = renderer.extend([{"role": "tool", "content": "def add(a, b):\n    return a - b"}])
    row = [id for message in said[:-1] for id in (*message, *result)] + list(said[-1])
    header = renderer.tokenizer.id_of(RESULT_END)
    assert header is not None
    spans = sampled_spans(row, renderer.stop_ids, header)
    assert [row[start:end] for start, end in spans] == [list(message) for message in said]
