"""Scope: needless lines cost, and a tiny patch is worth no more than any honest one."""

from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.builders import signal

from ostinato.rewards.parts.scope import HALF_LINES, scope
from ostinato.types import SignalKind


def cost(lines: float) -> float:
    return scope([signal(SignalKind.BEYOND, lines)]).value


def test_needless_lines_cost_and_needed_ones_do_not() -> None:
    assert cost(0) == 0 and cost(HALF_LINES) == 0.5
    assert scope([]).value == 0, "nobody knows what the task needs"


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_it_grows_and_stays_below_one(lines: int, more: int) -> None:
    assert 0 <= cost(lines) < cost(lines + more) < 1
