"""Bits a byte on held-out text, by position in the context.

A byte is a byte in any tokenizer, so two models of different vocabularies can be compared. A model that uses
its context needs fewer bits for a byte the further back it can look.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ostinato.data.corpus import Corpus, TextRow
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.base import StateError

FIRST = 64
"""The positions of the first bucket; each further one ends at twice the position of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """Bits a byte, of all text and by the first position of each bucket.

    >>> Bits(all=2.0, by_position={0: 2.5, 64: 1.9}).all
    2.0
    """

    all: float
    by_position: dict[int, float]


def held_out_rows(corpus: Corpus, length: int, most: int) -> list[TextRow]:
    """Return at most `most` rows of one document each, spread evenly over the held-out sources.

    Raises StateError where no held-out document is as long.
    """
    found = [(source, row) for source in corpus.held_out for row in source.whole(length)]
    if corpus.held_out and not found:
        raise StateError(
            f"no held-out document of the corpus has {length} tokens: give it a longer one, keep the files "
            'of a repository together (together = "repository"), or train on shorter rows'
        )
    chosen = {round(at) for at in np.linspace(0, len(found) - 1, min(most, len(found)))}
    return [source.row(row) for source, row in (found[at] for at in sorted(chosen))]


def bits_of(rows: Sequence[TextRow], nats: Sequence[torch.Tensor], tokenizer: Tokenizer) -> Bits:
    """Return the bits a byte of rows of one document each, from the nats of their tokens after the first.

    Control tokens have no bytes in the text: they are context alone.
    """
    control = tokenizer.control_ids
    sizes = [0 if id in control else len(tokenizer.decode_bytes([id])) for id in range(tokenizer.id_count)]
    by_id = np.array([*sizes, 0])
    length = len(rows[0].ids)
    totals, bytes_ = np.zeros(length), np.zeros(length)
    for row, values in zip(rows, nats, strict=True):
        size = by_id[np.minimum(row.ids, len(sizes))]
        bytes_ += size
        totals[1:] += np.where(size[1:] > 0, values.double().numpy(), 0.0)
    bytes_[0] = 0
    starts = [0, *(FIRST * 2**n for n in range(length.bit_length()) if FIRST * 2**n < length)]
    ends = [*starts[1:], length]
    by_position = {
        start: float(totals[start:end].sum() / bytes_[start:end].sum() / math.log(2))
        for start, end in zip(starts, ends, strict=True)
        if bytes_[start:end].sum()
    }
    return Bits(all=float(totals.sum() / bytes_.sum() / math.log(2)), by_position=by_position)
