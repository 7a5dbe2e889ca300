"""The fact of a changed protected file, as a visible test.

The exploit: make the visible tests agree with the code. The guard: it costs more than failing honestly, and
the outcome is then worth nothing.
"""

from collections.abc import Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.signals import positive
from ostinato.types import Signal, SignalKind


def tampered(signals: Sequence[Signal]) -> Fact:
    """Return 1 when a protected file was changed, however many."""
    matches = positive(signals, SignalKind.TAMPERED)
    return Fact(value=float(bool(matches)), evidence=tuple(signal.id for signal in matches))
