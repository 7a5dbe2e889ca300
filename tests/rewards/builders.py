"""Turns and signals of one session, for the tests of this room."""

from ostinato.types import Completion, FinishReason, Signal, SignalKind, Turn, TurnKind

ENDED = 101.0
"""The end of every turn that `turn` makes."""


def turn(index: int = 0, broken: str | None = None, kind: TurnKind = TurnKind.MAIN, tokens: int = 1) -> Turn:
    completion = Completion(
        ids=(3,) * tokens, logprobs=(-0.1,) * tokens, versions=(1,) * tokens, finish=FinishReason.STOP
    )
    return Turn(
        session_id="s",
        index=index,
        segment=0,
        arm="main",
        prompt_ids=(1, 2),
        completion=completion,
        started_at=100.0,
        latency_s=1.0,
        broken=broken,
        kind=kind,
    )


def signal(
    kind: SignalKind,
    value: float | str = 1.0,
    at: float = 0.0,
    edit: str | None = None,
    turn: int | None = None,
) -> Signal:
    return Signal(session_id="s", kind=kind, value=value, observed_at=at, edit=edit, turn=turn)
