"""The reward part for tool calls that could not be read.

Each one costs, and the session stays in the batch. Dropping such sessions instead would teach a policy to
break a call whenever it is losing, because a dropped sample is better than a bad one. A turn that the token
limit cut has a finish reason of its own and costs nothing here: the model did not break it.
"""

from collections.abc import Sequence

from ostinato.types import FinishReason, RewardPart, Turn


def broken(turns: Sequence[Turn], *, weight: float) -> RewardPart:
    """Return minus `weight` for each broken call."""
    cut = FinishReason.LENGTH
    ids = [turn.id for turn in turns if turn.broken is not None and turn.completion.finish is not cut]
    return RewardPart(name="broken", value=-weight * len(ids), evidence=tuple(ids))
