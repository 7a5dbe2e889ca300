"""Rows of tokens, and padded tensors from rows of unequal length with little padding.

Shapes: B rows, T tokens of the longest, N counted tokens.
"""
# ruff: noqa: N803, N806, N815

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.model.decoder import Decoder
from ostinato.model.replay import PADDING, Replay, RouterShape, RoutesError, recorded
from ostinato.train.config import PolicyConfig
from ostinato.train.losses import token_entropies, token_logprobs
from ostinato.types import Routes, Sample


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

    @property
    def scored(self) -> "ScoredRow":
        """The row as a model scores it: each token with a weight is counted."""
        return ScoredRow(ids=self.ids, counted=tuple(weight > 0 for weight in self.weights))

    @property
    def counted_weights(self) -> list[float]:
        """The weights of the counted tokens."""
        return [weight for weight in self.weights[1:] if weight > 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """Token ids, and which of them a model is to score. The first one has nothing before it: never scored.

    >>> ScoredRow(ids=(7, 8, 9), counted=(False, False, True)).places
    (2,)
    """

    ids: tuple[int, ...]
    counted: tuple[bool, ...]
    temperatures: tuple[float, ...] = ()
    """The temperature that each token was sampled at; empty when all are 1."""
    routes: Routes | None = None
    """The experts that are replayed; the model chooses its own for tokens without any."""
    margin: float = math.inf
    """The largest distance of a replayed expert's logit from the model's own choice: see `Replay`."""

    @property
    def places(self) -> tuple[int, ...]:
        """The places of the tokens to score."""
        return tuple(place for place in range(1, len(self.ids)) if self.counted[place])


class Scores(NamedTuple):
    """The scores of the counted tokens of some rows, row by row, of softmax(logits / T)."""

    logprobs_N: Tensor
    """The log-probability of each token in nats, with its gradient."""
    entropies_N: Tensor
    """The entropy in nats of the distribution that each token is one draw of, without gradient."""


def scores_of(logits_NV: Tensor, ids_N: Tensor, temperatures_N: Tensor | None) -> Scores:
    """Return the scores of tokens from their logits [N, V]."""
    entropies_N = token_entropies(logits_NV, temperatures_N)
    return Scores(token_logprobs(logits_NV, ids_N, temperatures_N), entropies_N)


def padded(values: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """Return a tensor [B, T], filled up with 0 on the right."""
    width = max(map(len, values))
    return torch.tensor([(*row, *(0,) * (width - len(row))) for row in values], dtype=dtype)


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of rows of similar length: a piece has at most `tokens` with padding, or one row."""
    piece: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if piece and (len(piece) + 1) * lengths[i] > tokens:
            yield piece
            piece = []
        piece.append(i)
    if piece:
        yield piece


def temperatures_of(rows: Sequence[ScoredRow]) -> Tensor | None:
    """Return the temperature of each token to score, row by row, [N]; None when none was given."""
    if not any(row.temperatures for row in rows):
        return None
    return torch.tensor(
        [row.temperatures[place] if row.temperatures else 1.0 for row in rows for place in row.places]
    )


def check_routes(sample: Sample, router: RouterShape, config: PolicyConfig) -> None:
    """Raise RoutesError, naming the session, for routes to replay that the model cannot have chosen."""
    if config.routes != "own" and sample.routes is not None:
        router.check(sample.routes, f"session {sample.session_id}")


def with_routes(
    row: ScoredRow, sample: Sample, router: RouterShape | None, config: PolicyConfig
) -> ScoredRow:
    """Return a sample's row with the routes to replay, which `check_routes` has let pass.

    Raises RoutesError for routes without a router.
    """
    if config.routes == "own" or sample.routes is None:
        return row
    if router is None:
        raise RoutesError(
            f"session {sample.session_id}: it has routes, and the trainer knows no router of this model: set "
            "policy.routes to own to train without them"
        )
    return replace(row, routes=sample.routes, margin=config.margin)


def padded_replay(rows: Sequence[ScoredRow], router: RouterShape | None) -> Replay | None:
    """Return the routes of the B·T padded tokens of rows, each without its last; None when no row has any."""
    if router is None or all(row.routes is None for row in rows):
        return None
    width = max(len(row.ids) for row in rows) - 1
    parts = [recorded(row.routes, 0, len(row.ids) - 1, router.width) for row in rows]
    filled = [F.pad(part, (0, 0, 0, width - len(part)), value=PADDING) for part in parts]
    recorded_NLP = torch.cat(filled).view(-1, router.layers, router.per_token)
    return Replay(recorded_NLP, min(row.margin for row in rows))


def counted_scores(decoder: Decoder, rows: Sequence[ScoredRow], replay: Replay | None = None) -> Scores:
    """Return the scores of the tokens to score, row by row.

    Logits are computed for those tokens only. Padding is on the right, so causal attention never sees it.
    """
    ids_BT = padded([row.ids for row in rows], torch.long)
    counted = padded([row.counted for row in rows], torch.bool)[:, 1:]
    hidden_BTC, _ = decoder.hidden(ids_BT[:, :-1], replay=replay)
    return scores_of(decoder.head(hidden_BTC[counted]), ids_BT[:, 1:][counted], temperatures_of(rows))
