"""Padded tensors from rows of unequal length, with little padding.

Shapes: B rows, T tokens of the longest, N counted tokens.
"""
# ruff: noqa: N803, N806

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ostinato.model.decoder import Decoder
from ostinato.train.losses import token_logprobs
from ostinato.train.shared import WORTH, packed_hidden, prompt_length

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Token ids, and for each the weight of its prediction. The first token is never predicted.

    >>> Row(ids=(7, 8, 9), weights=(0.0, 0.3, 1.0)).length
    3
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    session_id: str | None = None
    """The session that it comes from; None for a made-up row."""

    @property
    def length(self) -> int:
        return len(self.ids)


def padded(values: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """Return a tensor [B, T], filled up with 0 on the right."""
    width = max(map(len, values))
    return torch.tensor([(*row, *(0,) * (width - len(row))) for row in values], dtype=dtype)


def by_length(rows: Sequence[T], lengths: Sequence[int], tokens: int) -> Iterator[list[T]]:
    """Yield rows of similar length together: a piece has at most `tokens` with padding, or one row."""
    piece: list[T] = []
    for i in sorted(range(len(rows)), key=lambda i: lengths[i]):
        if piece and (len(piece) + 1) * lengths[i] > tokens:
            yield piece
            piece = []
        piece.append(rows[i])
    if piece:
        yield piece


def counted_logprobs(
    decoder: Decoder, ids_BT: Tensor, counted_BT: Tensor, temperatures_N: Tensor | None = None
) -> Tensor:
    """Return log-probabilities [N] of the tokens where `counted_BT` is True, row by row; the first column is
    ignored. `temperatures_N` are those that they were sampled with, 1 if they are not given.

    Logits are computed for those tokens only. Padding is on the right, so causal attention never sees it. A
    long prompt that all rows share is computed once.
    """
    counted = counted_BT[:, 1:]
    shared = prompt_length(ids_BT, counted_BT) if len(ids_BT) > 1 else 0
    if shared >= WORTH:
        hidden_NC = packed_hidden(decoder, ids_BT, counted_BT, shared)
    else:
        hidden_BTC, _ = decoder.hidden(ids_BT[:, :-1])
        hidden_NC = hidden_BTC[counted]
    return token_logprobs(decoder.head(hidden_NC), ids_BT[:, 1:][counted], temperatures_N)
