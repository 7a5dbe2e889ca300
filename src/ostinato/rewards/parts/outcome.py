"""The fact of a task that is done: every hidden test passed and nothing protected was touched.

The exploit: make the tests pass without the work, by changing them, or by writing their report from inside
the tested code. The guard: the tests are hidden and run on a fresh tree, a touched protected file voids the
pass, and a pass of a grade below `lowest` is worth nothing (`docs/verdict.md`): a policy that is trained on
forgeable passes may learn to forge them.
"""

from collections.abc import Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.signals import SignalValueError, latest, number, positive
from ostinato.types import Grade, Signal, SignalKind


def solved(signals: Sequence[Signal], *, lowest: Grade) -> Fact | None:
    """Return 1 or 0; None until the verifier's result is recorded. Raises SignalValueError."""
    verdict = latest(signals, (SignalKind.HIDDEN_TESTS,))
    if verdict is None:
        return None
    tampering = positive(signals, SignalKind.TAMPERED)
    too_low = [signal for signal in _grade(signals) if not _read(signal).at_least(lowest)]
    won = number(verdict) >= 1.0 and not tampering and not too_low
    evidence = (verdict.id, *(signal.id for signal in (*tampering, *too_low)))
    return Fact(value=float(won), evidence=evidence)


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
