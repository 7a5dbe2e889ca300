"""Rice codes of many numbers at once.

A number v is written as v >> k in unary, followed by its k low bits. When k fits the mean that is within 0.03
bits of the entropy of a geometric distribution, which the gaps between rare events have (Golomb 1966; Rice
and Plaunt 1971). Each block of numbers has the k that suits it best.

Unary parts and low bits are stored apart, so that whole arrays are packed at a time: the former as one row of
bits, the latter as planes of one bit each. Blocks are in falling order of k; plane b holds numbers whose k
exceeds b.
"""

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.codec.ordinal import Ints
from ostinato.sync.codec.payload import DamagedPayload, PayloadReader, number

BLOCK = 512
"""Numbers that share a k, so that k adapts to dense and rare changes; it costs 1/64 bit per number."""
LONGEST_UNARY = 24
"""A quotient of at least this is an outlier: it is written as this, and the rest of it in a list."""
MOST_LOW_BITS, LARGEST_BITS = 40, 60
LIST_DTYPES = [np.dtype(name) for name in ("<u1", "<u2", "<u4", "<u8")]


def flags_packed(flags: NDArray[np.bool_ | np.uint8]) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def flags_read(reader: PayloadReader, count: int) -> NDArray[np.uint8]:
    """Return `count` flags as 0 or 1, shape [count]."""
    packed = np.frombuffer(reader.take((count + 7) // 8), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little")


def packed(values: Ints, lengths: Ints) -> bytes:
    """Return `values` ≥ 0 of rows of these `lengths`, packed; each row is divided into its own blocks."""
    sizes = blocks(lengths)
    if not len(sizes):
        return b""
    ks = low_bits(values, sizes)
    order = np.argsort(-ks, kind="stable")
    values, k = values[_places(sizes, order)], np.repeat(ks[order], sizes[order])
    quotients = values >> k
    beyond = quotients[quotients >= LONGEST_UNARY] - LONGEST_UNARY
    np.minimum(quotients, LONGEST_UNARY, out=quotients)
    unary = _unary(quotients)
    return b"".join((ks.astype(np.uint8).tobytes(), unary, _planes(values, k), _listed(beyond)))


def read(reader: PayloadReader, lengths: Ints) -> Ints:
    """Return the values that `packed` was given. Raises DamagedPayload."""
    sizes = blocks(lengths)
    if not len(sizes):
        return np.zeros(0, np.int64)
    ks = reader.array(np.dtype("u1"), len(sizes)).astype(np.int64)
    if int(ks.max()) > MOST_LOW_BITS:
        raise DamagedPayload(f"payload holds {ks.max()} low bits a number, at most {MOST_LOW_BITS} can be")
    order = np.argsort(-ks, kind="stable")
    k = np.repeat(ks[order], sizes[order])
    quotients = _unary_read(reader, len(k))
    low = _planes_read(reader, k)
    outliers = np.flatnonzero(quotients >= LONGEST_UNARY)
    quotients[outliers] += _list_read(reader, len(outliers), below=1 << LARGEST_BITS - int(ks.max()))
    values = np.empty(len(k), np.int64)
    values[_places(sizes, order)] = (quotients << k) + low
    return values


def blocks(lengths: Ints) -> Ints:
    """Return the sizes of the blocks into which rows of these lengths are divided."""
    full, rest = lengths // BLOCK, lengths % BLOCK
    counts = full + (rest > 0)
    sizes = np.full(int(counts.sum()), BLOCK, np.int64)
    ends = np.cumsum(counts) - 1
    sizes[ends[rest > 0]] = rest[rest > 0]
    return sizes


def low_bits(values: Ints, sizes: Ints) -> Ints:
    """Return the k of each block, from its mean, or from the mean of logarithms where outliers raise that."""
    starts = np.cumsum(sizes) - sizes
    k = _rounded(values, np.log2(np.add.reduceat(values, starts) / sizes * np.log(2) + 1e-9), sizes)
    if int(values.max()) <= LONGEST_UNARY * (float(values.mean()) + 1):
        return k
    # E[log2(v + 1)] of a geometric distribution is about log2(mean) - 0.83.
    logs = np.add.reduceat(np.log2(values + 1), starts) / sizes
    robust = _rounded(values, logs + 0.83 + np.log2(np.log(2)), sizes)
    least: Ints = np.where(_bits(values, k, sizes) <= _bits(values, robust, sizes), k, robust)
    return least


def _rounded(values: Ints, best: NDArray[np.float64], sizes: Ints) -> Ints:
    """Return `best` for each block, rounded up or down to the k that needs fewer bits."""
    low = np.clip(np.floor(best), 0, MOST_LOW_BITS - 1).astype(np.int64)
    return low + (_bits(values, low + 1, sizes) < _bits(values, low, sizes))


def _bits(values: Ints, ks: Ints, sizes: Ints) -> Ints:
    """Return the bits that each block needs with this k; an outlier counts 16 beside its unary part."""
    quotients = values >> np.repeat(ks, sizes)
    far = quotients >= LONGEST_UNARY
    quotients[far] = LONGEST_UNARY + 16
    bits: Ints = np.add.reduceat(quotients, np.cumsum(sizes) - sizes) + sizes * (ks + 1)
    return bits


def _places(sizes: Ints, order: Ints) -> Ints:
    """Return the places of the numbers of the blocks, when the blocks are taken in this order."""
    starts = (np.cumsum(sizes) - sizes)[order]
    taken = sizes[order]
    return np.repeat(starts - (np.cumsum(taken) - taken), taken) + np.arange(int(taken.sum()))


def _unary(quotients: Ints) -> bytes:
    ends = np.cumsum(quotients + 1)
    flags = np.zeros(ends[-1], np.uint8)
    flags[ends - 1] = 1
    return number((int(ends[-1]) + 7) // 8) + flags_packed(flags)


def _unary_read(reader: PayloadReader, count: int) -> Ints:
    size = reader.number(most=(count * (LONGEST_UNARY + 1) + 7) // 8)
    ends = np.flatnonzero(flags_read(reader, 8 * size))
    if len(ends) != count:
        raise DamagedPayload(f"payload holds {len(ends)} numbers where {count} were expected")
    quotients = np.diff(ends, prepend=-1) - 1
    if int(quotients.max()) > LONGEST_UNARY:
        raise DamagedPayload(f"payload holds a quotient of {quotients.max()}, above {LONGEST_UNARY}")
    return quotients


def _plane_sizes(k: Ints) -> list[int]:
    """Return how many numbers have a bit in each plane; `k` falls."""
    rising = -k
    return [int(np.searchsorted(rising, -b, side="left")) for b in range(int(k[0]))]


def _planes(values: Ints, k: Ints) -> bytes:
    narrow = values.astype(next(each for each in LIST_DTYPES if 8 * each.itemsize >= int(k[0])))
    one = narrow.dtype.type
    sizes = _plane_sizes(k)
    return b"".join(flags_packed((narrow[:size] & one(1 << b)) != 0) for b, size in enumerate(sizes))


def _planes_read(reader: PayloadReader, k: Ints) -> Ints:
    dtype = next(each for each in LIST_DTYPES if 8 * each.itemsize >= int(k[0]))
    low = np.zeros(len(k), dtype)
    for b, size in enumerate(_plane_sizes(k)):
        low[:size] |= flags_read(reader, size).astype(dtype) << dtype.type(b)
    return low.astype(np.int64)


def _listed(values: Ints) -> bytes:
    """Return a few numbers in the smallest type that holds the largest; no bytes for no numbers."""
    if not len(values):
        return b""
    which = next(i for i, d in enumerate(LIST_DTYPES) if int(values.max()) < 1 << 8 * d.itemsize)
    return bytes([which]) + values.astype(LIST_DTYPES[which]).tobytes()


def _list_read(reader: PayloadReader, count: int, below: int) -> Ints:
    if not count:
        return np.zeros(0, np.int64)
    which = reader.byte()
    if which >= len(LIST_DTYPES):
        raise DamagedPayload(f"payload holds a list of type {which}, which does not exist")
    values = reader.array(LIST_DTYPES[which], count)
    if int(values.max()) >= below:
        raise DamagedPayload("payload holds a number that is too large")
    return values.astype(np.int64)
