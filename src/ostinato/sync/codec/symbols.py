"""`symbols`: how far every value moved, class by class, by significance, then zstd. For when most move.

A step is a difference of ordinals modulo the width of a value, the smallest ones first: 0, -1, 1, -2, 2 … are
0, 1, 2, 3, 4 …. Within a class steps are about as large as each other, so what zstd's entropy coder sees
changes little from one end of its block to the other. Needs its base to the bit.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.codec import planes
from ostinato.sync.codec.bounds import SAMPLE, bounds_for, bounds_packed, bounds_read
from ostinato.sync.codec.classes import classes
from ostinato.sync.codec.ordinal import Ints, Kind, Words
from ostinato.sync.codec.payload import Reader

MOST_BOUNDS = 3
"""Each class takes 4 ns a value to pick out; with seven bounds payloads are 1 to 2 % smaller."""


def packed(kind: Kind, bounds: list[int], before: Words, after: Words) -> bytes:
    """`after` for who holds `before`, in the classes that `bounds` divide it into."""
    steps = _zigzag(_unsigned(kind, after) - _unsigned(kind, before))
    grouped = np.concatenate([steps[group] for group in _groups(before, bounds)])
    return bounds_packed(bounds) + planes.packed(grouped)


def bounds_of(kind: Kind, before: Words, after: Words, places: Ints) -> list[int]:
    """Bounds that suit, from a sample of the changed values, which lie at `places` and are most of all."""
    some = places[:: max(1, len(places) // SAMPLE)]
    old = before[some]
    steps = kind.ordinals(after[some]).astype(np.int64) - kind.ordinals(old)
    return bounds_for(kind, old, old, np.abs(steps), MOST_BOUNDS)


def _unsigned(kind: Kind, words: Words) -> Words:
    """Ordinals that wrap around instead of overflowing."""
    return kind.ordinals(words).view(words.dtype)


def apply(kind: Kind, reader: Reader, words: Words) -> None:
    """Turns `words`, a copy of the base, into what was packed; after DamagedPayload they are void."""
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
