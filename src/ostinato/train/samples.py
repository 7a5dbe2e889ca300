"""Trainable rows from a session's turns, token for token as sampled. Torch-free.

Turns of one segment extend each other: the last turn's prompt holds everything before it, so a segment is
one row and each of its sampled tokens is trained on in the context it was sampled in.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TypeVar

from ostinato.types import Routes, Sample, Turn, TurnKind

T = TypeVar("T")
ROUNDING = 1e-4
"""The largest logprob that is accepted: float32 sums to a little more than 1."""


class UntrainableError(ValueError):
    """The recorded tokens are not those that the model read and sampled; training on them would be wrong.

    The message names the turn, `reason` says only why, so that it can be counted.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason = reason


BESIDE_THE_WORK = "a call beside the work"


def obstacle(turn: Turn) -> str | None:
    """Return the reason for which the policy gradient cannot learn from a turn; None when it can."""
    if turn.kind is TurnKind.SIDE:
        return BESIDE_THE_WORK
    return turn.untrainable or turn.unscorable


def trainable(turns: Sequence[Turn]) -> tuple[list[Turn], dict[str, list[Turn]]]:
    """Return the turns that the policy gradient can learn from, and the others by their obstacle."""
    kept, others = list[Turn](), defaultdict[str, list[Turn]](list)
    for turn in turns:
        reason = obstacle(turn)
        (kept if reason is None else others[reason]).append(turn)
    return kept, others


def samples_of(turns: Sequence[Turn], advantage: float, *, summaries: bool = True) -> list[Sample]:
    """Return one Sample a segment, for the policy gradient; the mask is on the sampled tokens of every turn.

    All segments of a session have its one advantage: what a summary carried on shows in the outcome alone.
    With `summaries` false, the tokens of summaries are read and not trained on; a segment in which nothing
    else was sampled has no Sample then.
    Raises UntrainableError as `rows_of` does, and when the probability of what a turn sampled cannot be
    computed again.
    """
    if unscorable := next((turn for turn in turns if turn.unscorable is not None), None):
        raise UntrainableError(f"turn {unscorable.id}", f"{unscorable.unscorable}")
    rows = rows_of(turns, advantage)
    if summaries:
        return rows
    masks = [_without_summaries(row, turns) for row in rows]
    return [replace(row, mask=mask) for row, mask in zip(rows, masks, strict=True) if any(mask)]


def _without_summaries(row: Sample, turns: Sequence[Turn]) -> tuple[bool, ...]:
    mask = list(row.mask)
    for turn in turns:
        if turn.kind is TurnKind.SUMMARY and turn.index in row.turns:
            start = len(turn.prompt_ids)
            mask[start : start + len(turn.completion.ids)] = [False] * len(turn.completion.ids)
    return tuple(mask)


def rows_of(turns: Sequence[Turn], advantage: float = 0.0) -> list[Sample]:
    """Return one Sample a segment, however it was sampled: fine-tuning imitates a teacher's tokens.

    Raises UntrainableError when a turn is marked untrainable, does not extend the one before it, a logprob is
    not a finite number <= 0, nothing was sampled, or routes do not fit the tokens.
    """
    if not turns:
        raise UntrainableError("a session", "there is no turn to train on")
    if marked := next((turn for turn in turns if turn.untrainable is not None), None):
        raise UntrainableError(f"turn {marked.id}", f"{marked.untrainable}")
    if any(after.index <= before.index for before, after in pairwise(turns)):
        raise UntrainableError(f"session {turns[0].session_id}", "its turns are not in order")
    segments = groupby(sorted(turns, key=lambda turn: turn.segment), key=lambda turn: turn.segment)
    return [_sample(list(segment), advantage) for _, segment in segments]


def demonstrated(turns: Sequence[Turn]) -> list[Sample]:
    """Return the rows of a session to imitate, without calls beside the work. Raises UntrainableError."""
    return rows_of([turn for turn in turns if turn.kind is not TurnKind.SIDE])


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
        temperatures=_placed(
            turns,
            [1.0] * len(ids),
            [[turn.sampling.temperature] * len(turn.completion.ids) for turn in turns],
        ),
        advantage=advantage,
        routes=_routes(turns),
    )


def _routes(turns: Sequence[Turn]) -> Routes | None:
    """Return the routes of a row's first tokens, each from the earliest turn that recorded them.

    A turn's engine computed everything before its last token, so its routes cover the row from the start. A
    later turn may have computed the same tokens again with other weights; the earliest one's routes belong to
    the forward pass that the recorded log-probabilities come from. Raises UntrainableError.
    """
    data, width = b"", 0
    for turn in turns:
        found = turn.completion.routes
        if found is None:
            continue
        tokens = len(turn.prompt_ids) + len(turn.completion.ids) - 1
        if not found or tokens < 1 or len(found) % (2 * tokens):
            raise UntrainableError(
                f"turn {turn.id}",
                f"its routes are not those of its tokens: {len(found)} bytes for {tokens} tokens",
            )
        own = len(found) // (2 * tokens)
        if width not in (0, own):
            raise UntrainableError(
                f"turn {turn.id}",
                f"its routes have {own} experts a token and those before it {width}: they are of two models",
            )
        data, width = data + found[len(data) :], own
    return Routes(data=data, width=width) if data else None


def _placed(turns: Sequence[Turn], row: list[T], values: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """Return `row` with each turn's values in the place of its completion."""
    for turn, some in zip(turns, values, strict=True):
        start = len(turn.prompt_ids)
        row[start : start + len(some)] = some
    return tuple(row)


def _check_extends(before: Turn, after: Turn) -> None:
    history = before.prompt_ids + before.completion.ids
    if after.prompt_ids[: len(history)] != history:
        raise UntrainableError(
            f"turns {before.id} and {after.id} of segment {after.segment}",
            "the later turn does not begin with the tokens of the earlier one: a changed history starts a "
            "new segment",
        )


def _check_sampled(turns: Sequence[Turn]) -> None:
    logprobs = [logprob for turn in turns for logprob in turn.completion.logprobs]
    if not logprobs:
        raise UntrainableError(f"turn {turns[-1].id}, segment {turns[-1].segment}", "nothing was sampled")
    if not all(math.isfinite(logprob) and logprob <= ROUNDING for logprob in logprobs):
        raise UntrainableError(f"turn {turns[-1].id}", "a recorded logprob is not a finite number <= 0")
