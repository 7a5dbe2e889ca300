"""The codec `overwrite`: the places of the changed values and their new bits.

It does not depend on the old values, so it may be applied twice, and it suits values that are unrelated to
the old ones.
"""

import math

import numpy as np

from ostinato.sync.codec import planes, rice, sparse_rows
from ostinato.sync.codec.ordinal import Ints, Words
from ostinato.sync.codec.payload import DamagedPayload, PayloadReader, number


def packed(after: Words, places: Ints) -> bytes:
    """Return the values at `places`, packed; the places rise and there is at least one."""
    gaps = np.diff(places, prepend=-1) - 1
    positions = number(len(gaps)) + rice.packed(gaps, np.array([len(gaps)]))
    return positions + planes.packed(after[places])


def at_least(count: int, places: Ints) -> float:
    """Return the bytes that the places alone would need if they were spread at random over `count` values."""
    p = len(places) / count
    return count * -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8


def apply(reader: PayloadReader, words: Words) -> None:
    """Turn `words`, a copy of any base, into the packed values; after DamagedPayload they are void."""
    count = reader.number(most=len(words))
    if not count:
        raise DamagedPayload("payload overwrites nothing")
    places = sparse_rows.places(rice.read(reader, np.array([count])), len(words))
    words[places] = planes.read(reader.rest(), words.dtype, count)
