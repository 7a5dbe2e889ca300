"""`overwrite`: the places of the changed values and their new bits.

It takes nothing from the old values, so it may be applied twice, and suits values that have nothing to do
with those before.
"""

import math

import numpy as np

from ostinato.sync.codec import planes, rice, sparse_rows
from ostinato.sync.codec.ordinal import Ints, Words
from ostinato.sync.codec.payload import DamagedPayload, Reader, number


def packed(after: Words, places: Ints) -> bytes:
    """`places` rise; there is one at least."""
    gaps = np.diff(places, prepend=-1) - 1
    positions = number(len(gaps)) + rice.packed(gaps, np.array([len(gaps)]))
    return positions + planes.packed(after[places])


def at_least(count: int, places: Ints) -> float:
    """Bytes that the places of changes alone would need, were they spread over `count` values by chance."""
    p = len(places) / count
    return count * -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8


def apply(reader: Reader, words: Words) -> None:
    """Turns `words`, a copy of any base, into what was packed; after DamagedPayload they are void."""
    count = reader.number(most=len(words))
    if not count:
        raise DamagedPayload("payload overwrites nothing")
    places = sparse_rows.places(rice.read(reader, np.array([count])), len(words))
    words[places] = planes.read(reader.rest(), words.dtype, count)
