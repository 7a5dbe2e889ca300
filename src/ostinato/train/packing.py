"""Rows packed one after another without padding, after the prefix that all of them begin with.

::

    rows    system task a …        packed   system │ task a … │ task b … │ …
            system task b …                 prefix   attends to the prefix and itself, positions go on

The sessions of an agent begin with the same system prompt and tools, which are most of a short session; they
are computed once for all rows of a pack. What rows share ends where their replayed experts differ.

Shapes: T packed tokens, N scored tokens, S stretches, K keys of all of them, H heads, D their size, W experts
of a token.
"""
# ruff: noqa: N815

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.model.replay import Replay, RouterShape, recorded
from ostinato.train.batch import ScoredRow, temperatures_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pack:
    """Some rows as one sequence.

    >>> pack([ScoredRow(ids=(1, 2, 3), counted=(False, False, True))]).ids_T.tolist()
    [1, 2]
    """

    rows: tuple[int, ...]
    """The numbers of the rows among all that were packed."""
    ids_T: Tensor
    positions_T: Tensor
    prefix: int
    """Tokens that all rows begin with."""
    spans: tuple[tuple[int, int], ...]
    """The packed places of each row after the prefix; its last token predicts nothing and is left out."""
    masks: tuple[Tensor | None, ...]
    """The places in the prefix and in its span that each token attends to, bool [span, prefix + span]; None
    without a prefix, since attention to all tokens before needs no mask, which would have [span, span]."""
    sources_N: Tensor
    """The packed place from which each scored token is predicted, row by row."""
    targets_N: Tensor
    temperatures_N: Tensor | None
    routes_TW: Tensor | None
    """The recorded experts of each token, or UNKNOWN; None when no row has any."""
    margin: float
    """The margin with which they are replayed."""
    stretches: "Stretches | None" = None
    """The form in which one kernel computes the attention of all rows; None where they take turns."""

    def to(self, device: torch.device, *, at_once: bool = False) -> "Pack":
        """Return the pack on another device; `at_once` is for half precision on a GPU."""
        if device.type == "cpu":
            return self
        temperatures, routes = self.temperatures_N, self.routes_TW
        return Pack(
            rows=self.rows,
            ids_T=self.ids_T.to(device),
            positions_T=self.positions_T.to(device),
            prefix=self.prefix,
            spans=self.spans,
            masks=() if at_once else tuple(None if mask is None else mask.to(device) for mask in self.masks),
            sources_N=self.sources_N.to(device),
            targets_N=self.targets_N.to(device),
            temperatures_N=None if temperatures is None else temperatures.to(device),
            routes_TW=None if routes is None else routes.to(device),
            margin=self.margin,
            stretches=_stretches(self, device) if at_once else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretches:
    """Stretches of queries, each with the stretch of keys whose end it is: the prefix, then each row.

    A row's keys are those of the prefix and its own, so that its queries attend as in a sequence alone.
    """

    keys_K: Tensor
    """The packed places of all keys, stretch by stretch."""
    queries_S: Tensor
    """The place at which each stretch of queries begins, and the end of the last, int32."""
    ends_S: Tensor
    """The same of the stretches of keys."""
    longest: tuple[int, int]
    """The length of the longest stretch of queries and of keys."""


def _stretches(pack: Pack, device: torch.device) -> Stretches:
    shared = list(range(pack.prefix))
    keys = [shared] if shared else []
    keys += [[*shared, *range(start, end)] for start, end in pack.spans]
    queries = [pack.prefix] * bool(shared) + [end - start for start, end in pack.spans]
    return Stretches(
        keys_K=torch.tensor([place for part in keys for place in part], device=device),
        queries_S=torch.tensor([0, *accumulate(queries)], dtype=torch.int32, device=device),
        ends_S=torch.tensor([0, *accumulate(map(len, keys))], dtype=torch.int32, device=device),
        longest=(max(queries), max(map(len, keys))),
    )


def attend(query: Tensor, key: Tensor, value: Tensor, pack: Pack, *, scale: float | None = None) -> Tensor:
    """Return the attention inside the prefix, and from each row to the prefix and itself, [1, H, T, D].

    Queries have H heads; keys and values may have fewer, each of which serves several.
    """
    if pack.stretches is not None:
        return _attend_at_once(query, key, value, pack.stretches, scale)
    attention = partial(
        F.scaled_dot_product_attention, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
    if pack.prefix == 0 and len({end - start for start, end in pack.spans}) == 1:  # a batch, without padding
        size = len(pack.spans), -1
        q, k, v = (torch.unflatten(each[0], 1, size).transpose(0, 1) for each in (query, key, value))
        return attention(q, k, v, is_causal=True).transpose(0, 1).flatten(1, 2)[None]
    p, parts = pack.prefix, list[Tensor]()
    if p:
        parts.append(attention(query[:, :, :p], key[:, :, :p], value[:, :, :p], is_causal=True))
    for (start, end), mask in zip(pack.spans, pack.masks, strict=True):
        keys, values = key[:, :, start:end], value[:, :, start:end]
        if p:
            keys, values = torch.cat([key[:, :, :p], keys], 2), torch.cat([value[:, :, :p], values], 2)
        parts.append(attention(query[:, :, start:end], keys, values, attn_mask=mask, is_causal=mask is None))
    return torch.cat(parts, 2)


def _attend_at_once(
    query: Tensor, key: Tensor, value: Tensor, stretches: Stretches, scale: float | None
) -> Tensor:
    # imported late: it loads torch's compiler, a second of CPU time that no machine without a GPU needs
    from torch.nn.attention.varlen import varlen_attn

    keys, values = (each[0].transpose(0, 1)[stretches.keys_K] for each in (key, value))
    attended = varlen_attn(
        query[0].transpose(0, 1),
        keys,
        values,
        stretches.queries_S,
        stretches.ends_S,
        *stretches.longest,
        scale=scale,
        window_size=(-1, 0),  # causal, and the last query of a stretch goes with its last key
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return cast(Tensor, attended).transpose(0, 1)[None]


def packs(rows: Sequence[ScoredRow], tokens: int) -> list[Pack]:
    """Return all rows in packs of at most `tokens`, or of one row, rows with a common prefix together.

    Rows without a token to score are left out.
    """
    return [pack([rows[i] for i in part], part) for part in parts_of(rows, tokens)]


def parts_of(
    rows: Sequence[ScoredRow], tokens: int, fits: Callable[[Sequence[ScoredRow]], bool] = lambda _: True
) -> list[list[int]]:
    """Return the numbers of the rows of each pack of at most `tokens`, or of one row, that `fits`."""
    numbers = sorted((i for i in range(len(rows)) if rows[i].places), key=lambda i: _order(rows[i]))
    parts: list[list[int]] = []
    prefix = 0
    for i in numbers:
        if parts:
            common = min(prefix, common_prefix(rows[parts[-1][0]], rows[i]))
            some = [rows[j] for j in (*parts[-1], i)]
            if packed_tokens(some, common) <= tokens and fits(some):
                parts[-1].append(i)
                prefix = common
                continue
        parts.append([i])
        prefix = rows[i].places[0]
    return parts


def longest_prefix(rows: Sequence[ScoredRow]) -> int:
    """Return the length of the longest prefix that two of the rows could share."""
    ordered = sorted((row for row in rows if row.places), key=_order)
    return max((common_prefix(one, other) for one, other in pairwise(ordered)), default=0)


def common_prefix(one: ScoredRow, other: ScoredRow) -> int:
    """Return how many tokens both begin with, before the first one to score in either.

    A token that was sent to other experts is another token.
    """
    most = min(one.places[0], other.places[0])
    same = next((place for place in range(most) if one.ids[place] != other.ids[place]), most)
    if one.routes == other.routes:
        return same
    pairs = zip(_experts(one)[:same], _experts(other)[:same], strict=True)
    return next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), same)


def _experts(row: ScoredRow) -> list[bytes]:
    """Return the recorded experts of each token of a row, of no bytes where there are none."""
    if row.routes is None:
        return [b""] * len(row.ids)
    data, size = row.routes.data, 2 * row.routes.width
    return [data[place * size : (place + 1) * size] for place in range(len(row.ids))]


def _order(row: ScoredRow) -> list[tuple[int, bytes]]:
    """Return a key by which rows that begin alike lie side by side."""
    return list(zip(row.ids, _experts(row), strict=True))


def packed_tokens(rows: Sequence[ScoredRow], prefix: int) -> int:
    return prefix + sum(len(row.ids) - 1 - prefix for row in rows)


def pack(rows: Sequence[ScoredRow], numbers: Sequence[int] | None = None) -> Pack:
    """Return `rows` as one sequence, after the longest prefix that they share."""
    prefix = min(common_prefix(rows[0], row) for row in rows) if len(rows) > 1 else 0
    ids, positions = list(rows[0].ids[:prefix]), list(range(prefix))
    spans, sources = list[tuple[int, int]](), list[int]()
    width = next((row.routes.width for row in rows if row.routes is not None), 0)
    routes = [recorded(rows[0].routes, 0, prefix, width)]
    for row in rows:
        start, length = len(ids), len(row.ids) - 1
        ids += row.ids[prefix:length]
        positions += range(prefix, length)
        routes.append(recorded(row.routes, prefix, length, width))
        spans.append((start, len(ids)))
        sources += [place - 1 if place <= prefix else start + place - 1 - prefix for place in row.places]
    return Pack(
        rows=tuple(range(len(rows)) if numbers is None else numbers),
        ids_T=torch.tensor(ids),
        positions_T=torch.tensor(positions),
        prefix=prefix,
        spans=tuple(spans),
        masks=tuple(_mask(prefix, end - start) for start, end in spans),
        sources_N=torch.tensor(sources),
        targets_N=torch.tensor([row.ids[place] for row in rows for place in row.places]),
        temperatures_N=temperatures_of(rows),
        routes_TW=torch.cat(routes) if width else None,
        margin=min(row.margin for row in rows),
    )


def packed_replay(pack: Pack, router: RouterShape | None) -> Replay | None:
    """Return the routes of the T tokens of a pack; None when it has none."""
    if router is None or pack.routes_TW is None:
        return None
    return Replay(pack.routes_TW.view(-1, router.layers, router.per_token), pack.margin)


def _mask(prefix: int, span: int) -> Tensor | None:
    if prefix == 0:
        return None
    return torch.ones(span, prefix + span, dtype=torch.bool).tril(prefix)
