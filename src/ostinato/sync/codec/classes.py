"""Values sorted into classes by the magnitude they had before, which both sides know.

The step of an optimizer is about as large for a small weight as for a large one, but the spacing of floats
grows with the weight: P(change) halves with each exponent. Coding each class on its own uses that knowledge
and saves 2 to 3 bits per changed value.

No value is moved: a class is a bitmap with 64 values per word, and the rank of a value among all, class by
class, is found by counting bits.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.codec.ordinal import Ints, Words

Bitmaps = NDArray[np.uint64]
Longs = NDArray[np.uint64]

CHUNK = 1 << 16
"""Values processed together, so that intermediate results stay in the cache of one core."""
BLOCK_WORDS = 8
"""Values are counted up to the end of each block; inside it eight counts are handled as one number."""
BLOCK = 64 * BLOCK_WORDS

EVEN, QUADS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)
QUAD_TOPS = np.uint64(0x8000800080008000)
EACH_BYTE, BYTE_TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
BYTE, ONE, EIGHT, SIXTEEN, LAST = (np.uint64(each) for each in (0xFF, 1, 8, 16, 48))
SELECT = np.argsort(
    1 - np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), kind="stable"
).astype(np.uint8)
"""[byte, r]: the r-th set bit of the byte."""


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The class of each value, as bitmaps of shape [classes, words] with one bit per value, in whole blocks.

    The rank of a value is its place when the values are taken class by class, each in its own order.
    """

    bitmaps: Bitmaps

    @cached_property
    def _words(self) -> Longs:
        return self.bitmaps.reshape(-1)

    @cached_property
    def _counts(self) -> Longs:
        """The number of values in each word; the counts of a block are the bytes of one number."""
        return np.bitwise_count(self._words).view(np.uint64)

    @cached_property
    def _until(self) -> Ints:
        """The number of values up to the end of each block."""
        return np.cumsum((_pairs(self._counts) * QUADS >> LAST).astype(np.int64))

    @cached_property
    def sizes(self) -> Ints:
        """The number of values of each class, shape [classes]."""
        return np.diff(self._until.reshape(len(self.bitmaps), -1)[:, -1], prepend=0)

    def ranks(self, places: Ints, which: Ints) -> Ints:
        """Return the ranks of the values at `places`, which are of the classes `which`."""
        word = which * self.bitmaps.shape[1] + (places >> 6)
        block = word >> 3
        counts = self._counts[block]
        # These are the counts of this word and of those after it in the block; the rest of the block lies
        # before.
        later = counts >> (EIGHT * (word & 7).astype(np.uint64))
        inside = np.bitwise_count(self._words[word] & (ONE << (places & 63).astype(np.uint64)) - ONE)
        ranks: Ints = self._until[block] - (_pairs(later) * QUADS >> LAST).astype(np.int64) + inside
        return ranks

    def places(self, ranks: Ints) -> Ints:
        """Return the places of the values of these ranks."""
        block = np.searchsorted(self._until, ranks, side="right")
        counts = self._counts[block]
        pairs = _pairs(counts)
        until = pairs * QUADS
        left = ranks.astype(np.uint64) - (self._until[block].astype(np.uint64) - (until >> LAST))
        pair = np.bitwise_count((left * QUADS | QUAD_TOPS) - until & QUAD_TOPS)
        shift = SIXTEEN * pair
        left -= (until << SIXTEEN) >> shift & np.uint64(0xFFFF)
        first = counts >> shift & BYTE
        second = left >= first
        left -= first * second
        word = block * BLOCK_WORDS + 2 * pair + second
        places: Ints = (word % self.bitmaps.shape[1] << 6) + selected(self._words[word], left)
        return places


def _pairs(counts: Longs) -> Longs:
    """Return sums of neighbouring bytes, in four lanes of 16 bits.

    The product with `QUADS` holds in lane i the sum of lanes 0 to i.
    """
    return (counts & EVEN) + (counts >> EIGHT & EVEN)


def selected(words: Longs, ranks: Longs) -> Ints:
    """Return, for each word, the set bit that has `rank` set bits below it; there must be one.

    Vigna, Broadword implementation of rank/select queries (2008): the byte is found by comparing the counts
    of all eight at once, the bit in it by a table.
    """
    counts = np.bitwise_count(words.view(np.uint8)).view(np.uint64)
    until = counts * EACH_BYTE
    passed = ((ranks * EACH_BYTE | BYTE_TOPS) - until) & BYTE_TOPS
    shift = np.bitwise_count(passed) * EIGHT
    left = ranks - ((until << EIGHT) >> shift & BYTE)
    bits: Ints = (shift + SELECT[words >> shift & BYTE, left]).astype(np.int64)
    return bits


def magnitudes(words: Words) -> Words:
    """Return twice the magnitude of each float: the sign is shifted out."""
    return words << words.dtype.type(1)


def classes(words: Words, bounds: list[int]) -> Classes:
    """Divide words into a class below each bound and one above; `bounds` rise, see `magnitudes`."""
    blocks = max(1, -(-len(words) // BLOCK))
    below = np.zeros((len(bounds) + 2, blocks * BLOCK_WORDS), np.uint64)
    below[-1] = _first(len(words), below.shape[1])
    if bounds:
        _compare(words, np.array(bounds, words.dtype)[:, None], below[1:-1].view(np.uint8))
    for lower, upper in pairwise(below):
        np.bitwise_xor(lower, upper, out=lower)
    return Classes(bitmaps=below[:-1])


def _compare(words: Words, bounds: Words, bitmaps: NDArray[np.uint8]) -> None:
    """Set the bit of each value below each bound."""
    doubled, flags = np.empty(CHUNK, words.dtype), np.empty((len(bounds), CHUNK), np.bool_)
    for start in range(0, len(words), CHUNK):
        chunk = words[start : start + CHUNK]
        size = len(chunk)
        np.left_shift(chunk, words.dtype.type(1), out=doubled[:size])
        np.less(doubled[:size], bounds, out=flags[:, :size])
        packed = np.packbits(flags[:, :size], axis=1, bitorder="little")
        bitmaps[:, start // 8 : start // 8 + packed.shape[1]] = packed


def _first(count: int, size: int) -> Longs:
    """Return `size` words with the first `count` bits set."""
    flags = np.zeros(size, np.uint64)
    flags[: count // 64] = ~np.uint64(0)
    if count % 64:
        flags[count // 64] = np.uint64((1 << count % 64) - 1)
    return flags
