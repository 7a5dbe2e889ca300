"""The reward part for a changed protected file: it costs more than failing honestly."""

from collections.abc import Sequence

from ostinato.rewards.signals import cost_if_any
from ostinato.types import RewardPart, Signal, SignalKind


def tampered(signals: Sequence[Signal], *, weight: float) -> RewardPart:
    """Return minus `weight`, once, when a protected file was changed."""
    return cost_if_any("tampered", signals, SignalKind.TAMPERED, weight=weight)
