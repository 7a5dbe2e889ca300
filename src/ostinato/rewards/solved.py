"""The task is done: every hidden test passed and nothing protected was touched."""

from collections.abc import Sequence

from ostinato.rewards.facts import held, latest, number
from ostinato.types import PartState, RewardPart, Signal, SignalKind


def solved(signals: Sequence[Signal], *, weight: float, accept_forgeable: bool) -> RewardPart:
    """All or nothing; censored until the verifier has spoken.

    A pass that the tested code could have written itself is worth nothing unless that is accepted.
    """
    verdict = latest(signals, (SignalKind.HIDDEN_TESTS,))
    if verdict is None:
        return RewardPart(name="solved", value=0.0, state=PartState.CENSORED)
    tampering = held(signals, SignalKind.TAMPERED)
    forgeable = () if accept_forgeable else held(signals, SignalKind.FORGEABLE)
    won = number(verdict) >= 1.0 and not tampering and not forgeable
    return RewardPart(
        name="solved",
        value=weight * won,
        evidence=(verdict.id, *(signal.id for signal in (*tampering, *forgeable))),
    )
