"""A session's turns ─► trainable rows, token for token as sampled. Torch-free.

Turns of one segment extend each other: the last turn's prompt holds everything before it, so a segment is
one row and each of its sampled tokens is trained on in the context it was sampled in.
"""

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from ostinato.types import Sample, Turn, TurnKind

T = TypeVar("T")
ROUNDING = 1e-4
"""How far above 0 a logprob may be: float32 sums to a little more than 1."""


class UntrainableError(ValueError):
    """The recorded tokens are not what the model saw and said; training on them would be wrong."""


def trainable(turns: Sequence[Turn]) -> tuple[list[Turn], list[Turn]]:
    """The turns that may be trained on, and the others: inexact ones and calls beside the work."""
    split: tuple[list[Turn], list[Turn]] = [], []
    for turn in turns:
        split[turn.untrainable is not None or turn.kind is TurnKind.SIDE].append(turn)
    return split


def samples_of(turns: Sequence[Turn], advantage: float) -> list[Sample]:
    """One Sample for each segment; the mask is on the sampled tokens of every turn.

    Raises UntrainableError when a turn is marked untrainable, does not extend the one before it, a logprob is
    not a finite number <= 0, or nothing was sampled.
    """
    if not turns:
        raise UntrainableError("a session without turns has nothing to train on")
    if marked := next((turn for turn in turns if turn.untrainable is not None), None):
        raise UntrainableError(f"turn {marked.id} is untrainable: {marked.untrainable}")
    if any(after.index <= before.index for before, after in pairwise(turns)):
        raise UntrainableError(f"session {turns[0].session_id}: turns are not in order")
    segments = groupby(sorted(turns, key=lambda turn: turn.segment), key=lambda turn: turn.segment)
    return [_sample(list(segment), advantage) for _, segment in segments]


def _sample(turns: Sequence[Turn], advantage: float) -> Sample:
    for before, after in pairwise(turns):
        _check_extends(before, after)
    _check_sampled(turns)
    last = turns[-1]
    ids = last.prompt_ids + last.completion.ids
    return Sample(
        session_id=last.session_id,
        turns=tuple(turn.index for turn in turns),
        ids=ids,
        mask=_placed(turns, [False] * len(ids), [[True] * len(turn.completion.ids) for turn in turns]),
        logprobs=_placed(turns, [0.0] * len(ids), [turn.completion.logprobs for turn in turns]),
        versions=_placed(turns, [0] * len(ids), [turn.completion.versions for turn in turns]),
        advantage=advantage,
    )


def _placed(turns: Sequence[Turn], row: list[T], values: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """`row` with each turn's values put where its completion stands."""
    for turn, some in zip(turns, values, strict=True):
        start = len(turn.prompt_ids)
        row[start : start + len(some)] = some
    return tuple(row)


def _check_extends(before: Turn, after: Turn) -> None:
    history = before.prompt_ids + before.completion.ids
    if after.prompt_ids[: len(history)] != history:
        raise UntrainableError(
            f"turn {after.id} does not begin with the {len(history)} tokens of turn {before.id}, though "
            f"both are in segment {after.segment}: a changed history must start a new segment"
        )


def _check_sampled(turns: Sequence[Turn]) -> None:
    logprobs = [logprob for turn in turns for logprob in turn.completion.logprobs]
    if not logprobs:
        raise UntrainableError(f"turn {turns[-1].id}: nothing was sampled in segment {turns[-1].segment}")
    if not all(math.isfinite(logprob) and logprob <= ROUNDING for logprob in logprobs):
        raise UntrainableError(f"turn {turns[-1].id}: a recorded logprob is not a finite number <= 0")
