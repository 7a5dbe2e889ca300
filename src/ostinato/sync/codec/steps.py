"""The codec `rice`: the steps of the changed values, class by class.

A payload consists of the bounds of the classes, a row for each class with the distances of its values in
ordinals (see `sparse_rows.py`), and the directions of the values that moved. The base must be exact to the
bit, and a payload may be applied only once.
"""

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.codec import sparse_rows
from ostinato.sync.codec.bounds import bounds_for, bounds_packed, bounds_read
from ostinato.sync.codec.classes import classes, magnitudes
from ostinato.sync.codec.ordinal import Ints, NumberKind, Words
from ostinato.sync.codec.payload import PayloadReader
from ostinato.sync.codec.rice import flags_packed, flags_read

MOST_BOUNDS = 7
"""Each bound costs one more pass over all values, 0.15 ns per value; an eighth would save less than 1 %."""


def packed(kind: NumberKind, before: Words, after: Words, places: Ints) -> bytes:
    """Return `after` packed for a reader of `before`; they differ at the rising `places` only."""
    old = before[places]
    steps = kind.ordinals(after[places]).astype(np.int64) - kind.ordinals(old)
    bounds = bounds_for(kind, before, old, np.abs(steps), MOST_BOUNDS)
    which = _class_of(old, bounds)
    order = np.argsort(which, kind="stable")
    groups = classes(before, bounds)
    rows = sparse_rows.Rows(
        at=groups.ranks(places[order], which[order].astype(np.int64)),
        values=np.abs(steps)[order],
        counts=np.bincount(which, minlength=len(bounds) + 1),
        lengths=groups.sizes,
    )
    return bounds_packed(bounds) + sparse_rows.packed(rows) + flags_packed(steps[order] < 0)


def _class_of(words: Words, bounds: list[int]) -> NDArray[np.uint8]:
    """Return the number of bounds at or below each value."""
    doubled, which = magnitudes(words), np.zeros(len(words), np.uint8)
    for bound in bounds:
        which += doubled >= words.dtype.type(bound)
    return which


def apply(kind: NumberKind, reader: PayloadReader, words: Words) -> None:
    """Turn `words`, a copy of the base, into the packed values; after DamagedPayload they are void."""
    bounds = bounds_read(reader, kind)
    groups = classes(words, bounds)
    rows = sparse_rows.read(reader, groups.sizes)
    down = flags_read(reader, len(rows.at))
    reader.end()
    places = groups.places(rows.at)
    steps = np.where(down, -rows.values, rows.values)
    words[places] = kind.words(kind.ordinals(words[places]) + steps)
