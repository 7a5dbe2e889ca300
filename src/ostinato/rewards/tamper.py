"""A protected file was changed: it costs more than failing honestly."""

from collections.abc import Sequence

from ostinato.rewards.facts import held
from ostinato.types import RewardPart, Signal, SignalKind


def tampered(signals: Sequence[Signal], *, weight: float) -> RewardPart:
    found = held(signals, SignalKind.TAMPERED)
    return RewardPart(
        name="tampered",
        value=-weight if found else 0.0,
        evidence=tuple(signal.id for signal in found),
    )
