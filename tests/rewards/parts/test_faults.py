"""Questions: a needless one costs, a needed one does not, and none of them pays."""

from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.builders import signal

from ostinato.rewards.parts.faults import HALF_LINES, needless_questions, scope
from ostinato.types import SignalKind

NEEDED, NEEDLESS = (signal(SignalKind.QUESTION_ANSWERED, value) for value in (1.0, 0.0))


def test_needless_questions_are_counted_and_needed_ones_are_not() -> None:
    assert needless_questions([NEEDED]).value == needless_questions([]).value == 0
    fact = needless_questions([NEEDED, NEEDLESS, NEEDLESS])
    assert (fact.value, fact.evidence) == (2, (NEEDLESS.id, NEEDLESS.id))


def cost(lines: float) -> float:
    return scope([signal(SignalKind.BEYOND, lines)]).value


def test_needless_lines_cost_and_needed_ones_do_not() -> None:
    assert cost(0) == 0 and cost(HALF_LINES) == 0.5
    assert scope([]).value == 0, "nobody knows what the task needs"


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_it_grows_and_stays_below_one(lines: int, more: int) -> None:
    assert 0 <= cost(lines) < cost(lines + more) < 1
