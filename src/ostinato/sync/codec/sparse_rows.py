"""Long rows of small numbers, most of them zero: where the others are, and how large.

A row is either the gaps between its others and, as a row of its own, by how much they exceed one; or every
number as it is. All gaps and numbers of all rows end up in Rice codes together.
"""

import math
from dataclasses import dataclass

import numpy as np

from ostinato.sync.codec import rice
from ostinato.sync.codec.ordinal import Ints
from ostinato.sync.codec.payload import DamagedPayload, Reader, number

ZEROS, GAPS, EVERY = range(3)
DEEPEST = 2
"""Rows of excess within rows of excess: steps of one are common, of two rare, of three ordinary again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of `lengths` numbers, [rows]. `counts` of them, [rows], are not zero: `values` ≥ 1 at `at`.

    `at` counts from the start of the first row through all rows and rises; both have shape [sum of counts].

    >>> Rows(at=np.array([1, 4]), values=np.array([2, 1]), counts=np.array([1, 1]), lengths=np.array([3, 3]))
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
    """Which form needs fewer bits, were the numbers geometrically distributed."""
    if not count:
        return ZEROS
    if depth == DEEPEST:
        return EVERY
    sparse = count * (_rice_bits((length - count) / count) + _entropy((total - count) / count))
    return GAPS if sparse < length * _rice_bits(total / length) else EVERY


def _rice_bits(mean: float) -> float:
    """Of one number in the best Rice code: k + 1 + θ^(2^k) / (1 - θ^(2^k)) with θ = mean / (1 + mean)."""
    theta = mean / (1 + mean)
    k = max(0, math.floor(math.log2(mean * math.log(2) + 1e-9)))
    return min(each + 1 + theta ** (1 << each) / (1 - theta ** (1 << each)) for each in (k, k + 1))


def _entropy(mean: float) -> float:
    return (1 + mean) * math.log2(1 + mean) - mean * math.log2(mean) if mean else 0.0


def _numbers(rows: Rows, kinds: Ints) -> tuple[Ints, Ints]:
    """Gaps or values of all rows, and how many of each row."""
    gaps = np.diff(rows.at, prepend=-1) - 1
    ends, starts = np.cumsum(rows.counts), np.cumsum(rows.lengths) - rows.lengths
    found = []
    for i, kind in enumerate(kinds):
        mine = slice(int(ends[i] - rows.counts[i]), int(ends[i]))
        if kind == GAPS:
            gaps[mine.start] = rows.at[mine.start] - starts[i]
            found.append(gaps[mine])
        elif kind == EVERY:
            found.append(dense(rows.at[mine] - starts[i], rows.values[mine], int(rows.lengths[i])))
    lengths = np.array([len(each) for each in found], np.int64)
    return np.concatenate(found or [gaps[:0]]), lengths


def _excess(rows: Rows, gapped: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
    """By how much the values of the gapped rows exceed one, in one row: blocks follow where it is dense."""
    numbers = rows.values[np.repeat(gapped, rows.counts)] - 1
    return rows_of(numbers, np.array([len(numbers)]))


def rows_of(numbers: Ints, lengths: Ints) -> Rows:
    """Rows that are written out, one after the other."""
    at = np.flatnonzero(numbers)
    before = np.searchsorted(at, np.concatenate(([0], np.cumsum(lengths))))
    return Rows(at=at, values=numbers[at], counts=np.diff(before), lengths=lengths)


def dense(at: Ints, values: Ints, length: int) -> Ints:
    numbers = np.zeros(length, np.int64)
    numbers[at] = values
    return numbers


def read(reader: Reader, lengths: Ints, depth: int = 0) -> Rows:
    """The inverse of `packed`."""
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
    """Rows from their gaps or numbers; `values` are those of the gapped rows, one after the other."""
    found: list[tuple[Ints, Ints]] = []
    starts = np.cumsum(lengths) - lengths
    for kind, count, length, start in zip(kinds, counts, lengths, starts, strict=True):
        mine, numbers = numbers[:count], numbers[count:]
        if kind == GAPS and count:
            found.append((start + places(mine, int(length)), values[:count]))
            values = values[count:]
        elif kind == EVERY:
            at = np.flatnonzero(mine)
            found.append((start + at, mine[at]))
        else:
            found.append((mine[:0], mine[:0]))
    ats, vals = zip(*found, strict=True)
    counted = np.array([len(at) for at in ats], np.int64)
    return Rows(at=np.concatenate(ats), values=np.concatenate(vals), counts=counted, lengths=lengths)


def places(gaps: Ints, length: int) -> Ints:
    """Where gaps lead in a row. Raises DamagedPayload for what lies beyond its end."""
    at = np.cumsum(gaps + 1) - 1
    # The sum of large gaps may have wrapped, so each is looked at, and where the last one leads.
    if int(gaps.max()) >= length or not 0 <= int(at[-1]) < length:
        raise DamagedPayload(f"payload holds places beyond the {length} there are")
    return at
