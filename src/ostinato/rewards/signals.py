"""Reading of signals: the latest one on a matter counts, because facts arrive late and are corrected."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from ostinato.types import Ending, Signal, SignalKind, Turn, TurnKind, TurnOutline

AnyTurn = TypeVar("AnyTurn", bound=Turn | TurnOutline)


class SignalValueError(ValueError):
    """A signal that should hold a number holds something else."""


class VoidSessionError(ValueError):
    """The session ended because the infrastructure failed: it has no reward at all."""


def latest(signals: Sequence[Signal], kinds: Collection[SignalKind]) -> Signal | None:
    """Return the last observed signal of these kinds; of two at the same time the one recorded later."""
    matches = [signal for signal in signals if signal.kind in kinds]
    return max(enumerate(matches), key=lambda pair: (pair[1].observed_at, pair[0]))[1] if matches else None


def number(signal: Signal) -> float:
    """Return the signal's value as a number. Raises SignalValueError."""
    try:
        return float(signal.value)
    except ValueError:
        raise SignalValueError(
            f"signal {signal.id} ({signal.kind}) of session {signal.session_id} holds {signal.value!r}: "
            "record a number"
        ) from None


def positive(signals: Sequence[Signal], kind: SignalKind) -> tuple[Signal, ...]:
    """Return the signals of this kind whose value is above zero: 0.0 records that it did not happen."""
    return tuple(signal for signal in signals if signal.kind is kind and number(signal) > 0)


def known_at(signals: Sequence[Signal], as_of: float | None) -> Sequence[Signal]:
    """Return the signals observed by `as_of` (seconds since the epoch), or all of them when it is None."""
    return signals if as_of is None else [signal for signal in signals if signal.observed_at <= as_of]


def without_side_calls(turns: Sequence[AnyTurn]) -> list[AnyTurn]:
    """Return the turns without the calls that a client makes beside the work, as for a title."""
    return [turn for turn in turns if turn.kind is not TurnKind.SIDE]


def refuse_void(session_id: str, signals: Sequence[Signal]) -> None:
    """Raise VoidSessionError for a session that the infrastructure ended."""
    ending = latest(signals, (SignalKind.ENDING,))
    if ending is not None and ending.value == Ending.INFRASTRUCTURE:
        raise VoidSessionError(
            f"session {session_id} ended by an infrastructure failure: "
            "leave it out and account its turns as void"
        )
