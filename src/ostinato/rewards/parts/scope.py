"""The fact of changes beyond what the task needs, in lines.

The exploit: a reward for small patches is won by patches that do nothing. The guard: it is a cost and never a
pay, it counts on passing work alone, and a patch of twice the reference's size is free, so the smallest patch
is worth no more than any honest one.
"""

from collections.abc import Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.signals import latest, number
from ostinato.types import Signal, SignalKind

HALF_LINES = 20.0
"""Lines beyond the need at which half of the cost is reached."""


def scope(signals: Sequence[Signal]) -> Fact:
    """Return n / (n + 20) for n needless lines, in [0, 1); 0 where nobody knows what the task needs."""
    beyond = latest(signals, (SignalKind.BEYOND,))
    if beyond is None:
        return Fact(value=0.0)
    lines = max(0.0, number(beyond))
    return Fact(value=lines / (lines + HALF_LINES), evidence=(beyond.id,) if lines else ())
