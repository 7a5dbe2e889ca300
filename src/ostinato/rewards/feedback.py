"""What the developer did with the result: the outcome of a live session, and their displeasure.

An outcome can be corrected later (kept on Monday, reverted on Friday): the latest one counts and the session
is scored anew. Until there is an outcome the part is censored; after the attribution window silence counts as
an outcome of 0.
"""

from collections.abc import Mapping, Sequence

from ostinato.rewards.facts import held, latest, number
from ostinato.types import RewardPart, Signal, SignalKind

OUTCOMES = (
    SignalKind.EDIT_KEPT,
    SignalKind.EDIT_EDITED,
    SignalKind.EDIT_REVERTED,
    SignalKind.NO_EDIT_WANTED,
    SignalKind.ABANDONED,
)


def outcome(
    signals: Sequence[Signal], *, worth: Mapping[SignalKind, float], wrong_answer: float, mature: bool
) -> RewardPart:
    """`worth` of the latest outcome; `wrong_answer` for an answered question that was answered wrongly."""
    happened = [
        s for s in signals if s.kind is SignalKind.NO_EDIT_WANTED or (s.kind in OUTCOMES and number(s) > 0)
    ]
    last = latest(happened, OUTCOMES)
    if last is None:
        return RewardPart(name="outcome", value=0.0, censored=not mature)
    wrong = last.kind is SignalKind.NO_EDIT_WANTED and number(last) <= 0
    value = wrong_answer if wrong else worth[last.kind]
    return RewardPart(name="outcome", value=value, evidence=(last.id,))


def complaint(signals: Sequence[Signal], *, weight: float) -> RewardPart:
    """One cost however often they complained: the second complaint is about the same work."""
    found = held(signals, SignalKind.COMPLAINT)
    return RewardPart(
        name="complaint", value=-weight if found else 0.0, evidence=tuple(signal.id for signal in found)
    )
