"""The fact of tool calls that could not be read.

The exploit: a sample whose call is broken used to be dropped, so a policy that is losing breaks a call, since
a dropped sample is better than a bad one. The guard: such sessions stay in the batch, and each broken call
costs. A turn that the token limit cut has a finish reason of its own and costs nothing here: the model did
not break it.
"""

from collections.abc import Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.types import FinishReason, Turn, TurnOutline


def broken(turns: Sequence[Turn | TurnOutline]) -> Fact:
    """Return the number of broken calls."""
    cut = FinishReason.LENGTH
    ids = [turn.id for turn in turns if turn.broken is not None and turn.finish is not cut]
    return Fact(value=len(ids), evidence=tuple(ids))
