"""Tool calls that could not be read.

Each one costs, and the session stays in the batch. Dropping such sessions instead teaches a policy to break a
call whenever it is losing, because a dropped sample is better than a bad one. A turn that the limit of tokens
cut was not broken by who wrote it: it has its own finish reason and costs nothing here.
"""

from collections.abc import Sequence

from ostinato.types import FinishReason, RewardPart, Turn


def broken(turns: Sequence[Turn], *, weight: float) -> RewardPart:
    cut = FinishReason.LENGTH
    found = [turn.id for turn in turns if turn.broken is not None and turn.completion.finish is not cut]
    return RewardPart(name="broken", value=-weight * len(found), evidence=tuple(found))
