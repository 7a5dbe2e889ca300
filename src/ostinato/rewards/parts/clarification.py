"""The fact of questions that the repository could have answered.

The exploit: ask in order to dodge the edit and whatever it might cost. The guard: the session goes on with an
answer, so the outcome still has to be earned; a question where the task leaves nothing open costs, and so
does every question after the first where it does. A needed question pays nothing by itself: asking is worth
what it does for the outcome (`docs/rewards.md` has the table by ambiguity).
"""

from collections.abc import Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.signals import number
from ostinato.types import Signal, SignalKind


def needless_questions(signals: Sequence[Signal]) -> Fact:
    """Return the number of questions that the task's card calls needless; 0 for a task without a card."""
    asked = [signal for signal in signals if signal.kind is SignalKind.QUESTION_ANSWERED]
    needless = tuple(signal.id for signal in asked if number(signal) <= 0)
    return Fact(value=len(needless), evidence=needless)
