"""Rows of a corpus as packs that a model reads."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch

from ostinato.data.corpus import TextRow
from ostinato.train.packing import Pack


def text_pack(rows: Sequence[TextRow], *, confined: bool) -> Pack:
    """Return rows as one pack: attention and positions go over a document, or over a whole row.

    Either way a document's first token in a row is not predicted, so that both predict the same tokens.
    """
    spans, sources, at = list[tuple[int, int]](), [], 0
    for row in rows:
        bounds = [at + start for start in row.starts] + [at + len(row.ids)]
        sources += [np.arange(start, end - 1) for start, end in pairwise(bounds)]
        spans += list(pairwise(bounds)) if confined else [(at, bounds[-1])]
        at = bounds[-1]
    ids = torch.from_numpy(np.concatenate([row.ids for row in rows]))
    places = torch.from_numpy(np.concatenate(sources))
    return Pack(
        rows=tuple(range(len(rows))),
        ids_T=ids,
        positions_T=torch.cat([torch.arange(end - start) for start, end in spans]),
        prefix=0,
        spans=tuple(spans),
        masks=(None,) * len(spans),
        sources_N=places,
        targets_N=ids[places + 1],
        temperatures_N=None,
        routes_TW=None,
        margin=0.0,
    )


def text_packs(rows: Sequence[TextRow], tokens: int, *, confined: bool) -> Iterator[Pack]:
    """Yield packs of at most `tokens`, or of one row."""
    together = max(1, tokens // len(rows[0].ids))
    for first in range(0, len(rows), together):
        yield text_pack(rows[first : first + together], confined=confined)
