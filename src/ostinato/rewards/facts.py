"""Reading signals: the latest word on a matter counts, because facts arrive late and are corrected."""

from collections.abc import Collection, Sequence

from ostinato.types import Ending, Signal, SignalKind, Turn, TurnKind


class SignalValueError(ValueError):
    """A signal that should hold a number holds something else."""


class VoidSessionError(ValueError):
    """The session ended because something of ours failed: it has no reward at all."""


def latest(signals: Sequence[Signal], kinds: Collection[SignalKind]) -> Signal | None:
    """The last observed of these kinds; of two at the same time the one recorded later."""
    found = [signal for signal in signals if signal.kind in kinds]
    return max(enumerate(found), key=lambda pair: (pair[1].observed_at, pair[0]))[1] if found else None


def number(signal: Signal) -> float:
    """The signal's value as a number. Raises SignalValueError."""
    try:
        return float(signal.value)
    except ValueError:
        raise SignalValueError(
            f"signal {signal.id} ({signal.kind}) of session {signal.session_id} holds {signal.value!r}: "
            "record a number"
        ) from None


def held(signals: Sequence[Signal], kind: SignalKind) -> tuple[Signal, ...]:
    """The signals of this kind whose value is above zero: 0.0 is the record that it did not happen."""
    return tuple(signal for signal in signals if signal.kind is kind and number(signal) > 0)


def known_at(signals: Sequence[Signal], as_of: float | None) -> Sequence[Signal]:
    """The signals of what had happened by `as_of` (seconds since the epoch); all of them for None."""
    return signals if as_of is None else [signal for signal in signals if signal.observed_at <= as_of]


def of_the_agent(turns: Sequence[Turn]) -> list[Turn]:
    """Without the calls that a client makes beside the work, for a title or a status line."""
    return [turn for turn in turns if turn.kind is not TurnKind.SIDE]


def refuse_void(session_id: str, signals: Sequence[Signal]) -> None:
    """Raises VoidSessionError for a session that our infrastructure ended."""
    ending = latest(signals, (SignalKind.ENDING,))
    if ending is not None and ending.value == Ending.INFRASTRUCTURE:
        raise VoidSessionError(
            f"session {session_id} ended by an infrastructure failure: "
            "leave it out and account its turns as void"
        )
