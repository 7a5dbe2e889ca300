"""Questions to the user: worth a little where nothing else decides, a cost where the repository already did.

The episode goes on after the answer and its outcome still pays, so asking is no way around being judged.
"""

from collections.abc import Sequence

from ostinato.rewards.facts import number
from ostinato.types import RewardPart, Signal, SignalKind


def asked(signals: Sequence[Signal], *, needed: float, needless: float) -> RewardPart:
    """`needed` once, for a question that was needed; `-needless` for every other question."""
    questions = [signal for signal in signals if signal.kind is SignalKind.QUESTION_ANSWERED]
    good = min(1, sum(number(signal) > 0 for signal in questions))
    value = needed * good - needless * (len(questions) - good)
    return RewardPart(name="asked", value=value, evidence=tuple(signal.id for signal in questions))
