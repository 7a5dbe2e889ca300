"""The reward part for a task that is done: every hidden test passed and nothing protected was touched."""

from collections.abc import Sequence

from ostinato.rewards.signals import SignalValueError, latest, number, positive
from ostinato.types import Grade, PartState, RewardPart, Signal, SignalKind


def solved(signals: Sequence[Signal], *, weight: float, lowest: Grade) -> RewardPart:
    """Return all of `weight` or nothing; the part is censored until the verifier's result is recorded.

    A pass by a verdict of a grade below `lowest` is worth nothing. Raises SignalValueError.
    """
    verdict = latest(signals, (SignalKind.HIDDEN_TESTS,))
    if verdict is None:
        return RewardPart(name="solved", value=0.0, state=PartState.CENSORED)
    tampering = positive(signals, SignalKind.TAMPERED)
    too_low = [signal for signal in _grade(signals) if not _read(signal).at_least(lowest)]
    won = number(verdict) >= 1.0 and not tampering and not too_low
    evidence = (verdict.id, *(signal.id for signal in (*tampering, *too_low)))
    return RewardPart(name="solved", value=weight * won, evidence=evidence)


def _grade(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return the signal that says the verdict's grade; none for a verdict that was judged long ago."""
    grade = latest(signals, (SignalKind.GRADE,))
    return () if grade is None else (grade,)


def _read(signal: Signal) -> Grade:
    try:
        return Grade(str(signal.value))
    except ValueError:
        raise SignalValueError(
            f"signal {signal.id} of session {signal.session_id} holds {signal.value!r}: "
            f"record a grade out of {', '.join(Grade)}"
        ) from None
