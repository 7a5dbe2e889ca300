"""The codec `symbols`, for tensors of which most values move: all steps, class by class, by byte, then zstd.

A step is a difference of ordinals modulo the width of a value, with the smallest first: 0, -1, 1, -2, 2 …
become 0, 1, 2, 3, 4 …. Within a class steps have about the same size, so the statistics of zstd's entropy
coder change little within its block. The base must be exact to the bit.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.codec import planes
from ostinato.sync.codec.bounds import SAMPLE, bounds_for, bounds_packed, bounds_read
from ostinato.sync.codec.classes import classes
from ostinato.sync.codec.ordinal import Ints, NumberKind, Words
from ostinato.sync.codec.payload import PayloadReader

MOST_BOUNDS = 3
"""Each class takes 4 ns per value to select; with seven bounds payloads would be 1 to 2 % smaller."""


def packed(kind: NumberKind, bounds: list[int], before: Words, after: Words) -> bytes:
    """Return `after` packed for a reader of `before`, in the classes into which `bounds` divide it."""
    steps = _zigzag(_unsigned(kind, after) - _unsigned(kind, before))
    grouped = np.concatenate([steps[group] for group in _groups(before, bounds)])
    return bounds_packed(bounds) + planes.packed(grouped)


def bounds_of(kind: NumberKind, before: Words, after: Words, places: Ints) -> list[int]:
    """Return suitable bounds, from a sample of the changed values, which lie at `places`."""
    some = places[:: max(1, len(places) // SAMPLE)]
    old = before[some]
    steps = kind.ordinals(after[some]).astype(np.int64) - kind.ordinals(old)
    return bounds_for(kind, old, old, np.abs(steps), MOST_BOUNDS)


def _unsigned(kind: NumberKind, words: Words) -> Words:
    """Return ordinals that wrap around instead of overflowing."""
    return kind.ordinals(words).view(words.dtype)


def apply(kind: NumberKind, reader: PayloadReader, words: Words) -> None:
    """Turn `words`, a copy of the base, into the packed values; after DamagedPayload they are void."""
    bounds = bounds_read(reader, kind)
    grouped = planes.read(reader.rest(), words.dtype, len(words))
    steps, start = np.empty_like(words), 0
    for group in _groups(words, bounds):
        count = int(np.count_nonzero(group))
        steps[group] = grouped[start : start + count]
        start += count
    words[:] = kind.words(_unsigned(kind, words) + _unzigzag(steps))


def _groups(words: Words, bounds: list[int]) -> Iterator[NDArray[np.bool_]]:
    for bitmap in classes(words, bounds).bitmaps:
        yield np.unpackbits(bitmap.view(np.uint8), count=len(words), bitorder="little").view(np.bool_)


def _zigzag(steps: Words) -> Words:
    one, top = steps.dtype.type(1), steps.dtype.type(8 * steps.itemsize - 1)
    return (steps << one) ^ (steps.dtype.type(0) - (steps >> top))


def _unzigzag(steps: Words) -> Words:
    one = steps.dtype.type(1)
    return (steps >> one) ^ (steps.dtype.type(0) - (steps & one))
