"""Coding of long rows of small numbers, most of which are zero.

A row is coded in one of two ways: as the gaps between its non-zero numbers, with the excess of those numbers
over one as a row of its own; or as every number as it is. All gaps and numbers of all rows are Rice-coded
together.
"""

import math
from dataclasses import dataclass

import numpy as np

from ostinato.sync.codec import rice
from ostinato.sync.codec.ordinal import Ints
from ostinato.sync.codec.payload import DamagedPayload, PayloadReader, number

ZEROS, GAPS, EVERY = range(3)
DEEPEST = 2
"""The depth of rows of excess within rows of excess: steps of one are common, longer ones rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of numbers, of which `counts` in each row are not zero; `lengths` and `counts` have shape [rows].

    `values` ≥ 1 are the non-zero numbers and `at` their places, counted from the start of the first row
    through all rows; both have shape [sum of counts], and `at` rises.

    >>> Rows(
    ...     at=np.array([1, 4]), values=np.array([2, 1]), counts=np.array([1, 1]), lengths=np.array([3, 3])
    ... ).lengths.sum()
    np.int64(6)
    """

    at: Ints
    values: Ints
    counts: Ints
    lengths: Ints


def packed(rows: Rows, depth: int = 0) -> bytes:
    kinds = np.array(_kinds(rows, depth), np.int64)
    gapped = kinds == GAPS
    counts = b"".join(number(int(count)) for count in rows.counts[gapped])
    numbers = rice.packed(*_numbers(rows, kinds))
    deeper = packed(_excess(rows, gapped), depth + 1) if gapped.any() else b""
    return b"".join((kinds.astype(np.uint8).tobytes(), counts, numbers, deeper))


def _kinds(rows: Rows, depth: int) -> list[int]:
    ends = np.cumsum(rows.counts)
    totals = np.diff(np.concatenate(([0], np.cumsum(rows.values)))[np.concatenate(([0], ends))])
    each = zip(rows.lengths.tolist(), rows.counts.tolist(), totals.tolist(), strict=True)
    return [_kind(length, count, total, depth) for length, count, total in each]


def _kind(length: int, count: int, total: int, depth: int) -> int:
    """Return the form that needs fewer bits if the numbers are geometrically distributed."""
    if not count:
        return ZEROS
    if depth == DEEPEST:
        return EVERY
    sparse = count * (_rice_bits((length - count) / count) + _entropy((total - count) / count))
    return GAPS if sparse < length * _rice_bits(total / length) else EVERY


def _rice_bits(mean: float) -> float:
    """Return the mean bits per number in the best Rice code for geometric numbers of this mean.

    They are k + 1 + θ^(2^k) / (1 - θ^(2^k)) with θ = mean / (1 + mean).
    """
    theta = mean / (1 + mean)
    k = max(0, math.floor(math.log2(mean * math.log(2) + 1e-9)))
    return min(each + 1 + theta ** (1 << each) / (1 - theta ** (1 << each)) for each in (k, k + 1))


def _entropy(mean: float) -> float:
    return (1 + mean) * math.log2(1 + mean) - mean * math.log2(mean) if mean else 0.0


def _numbers(rows: Rows, kinds: Ints) -> tuple[Ints, Ints]:
    """Return the gaps or values of all rows, and their number in each row."""
    gaps = np.diff(rows.at, prepend=-1) - 1
    ends, starts = np.cumsum(rows.counts), np.cumsum(rows.lengths) - rows.lengths
    numbers = []
    for i, kind in enumerate(kinds):
        mine = slice(int(ends[i] - rows.counts[i]), int(ends[i]))
        if kind == GAPS:
            gaps[mine.start] = rows.at[mine.start] - starts[i]
            numbers.append(gaps[mine])
        elif kind == EVERY:
            numbers.append(dense(rows.at[mine] - starts[i], rows.values[mine], int(rows.lengths[i])))
    lengths = np.array([len(each) for each in numbers], np.int64)
    return np.concatenate(numbers or [gaps[:0]]), lengths


def _excess(rows: Rows, gapped: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
    """Return, as one row, the excess over one of the gapped rows' values; blocks adapt to dense parts."""
    numbers = rows.values[np.repeat(gapped, rows.counts)] - 1
    return rows_of(numbers, np.array([len(numbers)]))


def rows_of(numbers: Ints, lengths: Ints) -> Rows:
    """Return the rows of `numbers`, which are written out one row after the other."""
    at = np.flatnonzero(numbers)
    before = np.searchsorted(at, np.concatenate(([0], np.cumsum(lengths))))
    return Rows(at=at, values=numbers[at], counts=np.diff(before), lengths=lengths)


def dense(at: Ints, values: Ints, length: int) -> Ints:
    numbers = np.zeros(length, np.int64)
    numbers[at] = values
    return numbers


def read(reader: PayloadReader, lengths: Ints, depth: int = 0) -> Rows:
    """Return the rows that `packed` was given. Raises DamagedPayload."""
    kinds = reader.array(np.dtype("u1"), len(lengths)).astype(np.int64)
    if (kinds > EVERY).any() or (depth == DEEPEST and (kinds == GAPS).any()):
        raise DamagedPayload(f"payload holds rows of kinds {set(kinds.tolist())} at depth {depth}")
    counts = np.where(kinds == EVERY, lengths, 0)
    for i in np.flatnonzero(kinds == GAPS):
        counts[i] = reader.number(most=int(lengths[i]))
    numbers = rice.read(reader, counts)
    gapped = kinds == GAPS
    values = np.ones(0, np.int64)
    if gapped.any():
        total = int(counts[gapped].sum())
        excess = read(reader, np.array([total]), depth + 1)
        values = dense(excess.at, excess.values, total) + 1
    return _joined(kinds, counts, lengths, numbers, values)


def _joined(kinds: Ints, counts: Ints, lengths: Ints, numbers: Ints, values: Ints) -> Rows:
    """Return rows from their gaps or numbers; `values` are those of the gapped rows, one after the other."""
    nonzero: list[tuple[Ints, Ints]] = []
    starts = np.cumsum(lengths) - lengths
    for kind, count, length, start in zip(kinds, counts, lengths, starts, strict=True):
        mine, numbers = numbers[:count], numbers[count:]
        if kind == GAPS and count:
            nonzero.append((start + places(mine, int(length)), values[:count]))
            values = values[count:]
        elif kind == EVERY:
            at = np.flatnonzero(mine)
            nonzero.append((start + at, mine[at]))
        else:
            nonzero.append((mine[:0], mine[:0]))
    ats, vals = zip(*nonzero, strict=True)
    counted = np.array([len(at) for at in ats], np.int64)
    return Rows(at=np.concatenate(ats), values=np.concatenate(vals), counts=counted, lengths=lengths)


def places(gaps: Ints, length: int) -> Ints:
    """Return the places to which gaps lead in a row. Raises DamagedPayload for places beyond its end."""
    at = np.cumsum(gaps + 1) - 1
    # The sum of large gaps may have wrapped around, so each gap is checked, and the last place.
    if int(gaps.max()) >= length or not 0 <= int(at[-1]) < length:
        raise DamagedPayload(f"payload holds places beyond the {length} there are")
    return at
