"""Tool calls that could not be read.

Each one costs, and the session stays in the batch. Dropping such sessions instead teaches a policy to break a
call whenever it is losing, because a dropped sample is better than a bad one.
"""

from collections.abc import Sequence

from ostinato.types import RewardPart, Turn


def broken(turns: Sequence[Turn], *, weight: float) -> RewardPart:
    found = [turn.id for turn in turns if turn.broken is not None]
    return RewardPart(name="broken", value=-weight * len(found), evidence=tuple(found))
