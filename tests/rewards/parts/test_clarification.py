"""Questions: a needless one costs, a needed one does not, and none of them pays."""

from tests.rewards.builders import signal

from ostinato.rewards.parts.clarification import needless_questions
from ostinato.types import SignalKind

NEEDED, NEEDLESS = (signal(SignalKind.QUESTION_ANSWERED, value) for value in (1.0, 0.0))


def test_needless_questions_are_counted_and_needed_ones_are_not() -> None:
    assert needless_questions([NEEDED]).value == needless_questions([]).value == 0
    fact = needless_questions([NEEDED, NEEDLESS, NEEDLESS])
    assert (fact.value, fact.evidence) == (2, (NEEDLESS.id, NEEDLESS.id))
