"""The reward part for a task that is done: every hidden test passed and nothing protected was touched."""

from collections.abc import Sequence

from ostinato.rewards.signals import latest, number, positive
from ostinato.types import PartState, RewardPart, Signal, SignalKind


def solved(signals: Sequence[Signal], *, weight: float, accept_forgeable: bool) -> RewardPart:
    """Return all of `weight` or nothing; the part is censored until the verifier's result is recorded.

    A pass that the tested code could have written itself is worth nothing unless that is accepted.
    """
    verdict = latest(signals, (SignalKind.HIDDEN_TESTS,))
    if verdict is None:
        return RewardPart(name="solved", value=0.0, state=PartState.CENSORED)
    tampering = positive(signals, SignalKind.TAMPERED)
    forgeable = () if accept_forgeable else positive(signals, SignalKind.FORGEABLE)
    won = number(verdict) >= 1.0 and not tampering and not forgeable
    evidence = (verdict.id, *(signal.id for signal in (*tampering, *forgeable)))
    return RewardPart(name="solved", value=weight * won, evidence=evidence)
