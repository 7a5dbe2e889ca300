"""The bounds of classes: neighbouring exponents share a class unless two classes are cheaper."""

import math
from itertools import pairwise

import numpy as np

from ostinato.sync.codec.classes import magnitudes
from ostinato.sync.codec.ordinal import Ints, NumberKind, Words
from ostinato.sync.codec.payload import DamagedPayload, PayloadReader, number

FEW = 64
"""The number of changed values below which there is one class."""
SAMPLE, LARGEST_STEP = 1 << 14, 1 << 12
MOST_READ = 15
"""The most bounds that a reader accepts: bitmaps of more classes would outgrow the tensor."""
CLASS_BITS = 120.0
"""The cost of the headers of one more class."""

Exponents = tuple[float, float]
"""The values of neighbouring exponents: their number, and the sum of their steps."""


def bounds_for(kind: NumberKind, words: Words, old: Words, steps: Ints, most: int) -> list[int]:
    """Return at most `most` rising bounds, see `magnitudes`.

    `old` are the changed values among `words`, before the change, and `steps` ≥ 1 their distances. The number
    of the unchanged values is estimated from a sample.
    """
    if kind.mantissa is None or len(old) < FEW:
        return []
    shift = words.dtype.type(kind.mantissa + 1)
    highest = 1 << kind.width - int(shift)
    exponents = magnitudes(old) >> shift
    moved = np.bincount(exponents, weights=np.minimum(steps, LARGEST_STEP), minlength=highest)
    counts = np.bincount(exponents, minlength=highest)
    if words is not old:
        stride = max(1, len(words) // SAMPLE)
        every = np.bincount(magnitudes(words[::stride]) >> shift, minlength=highest) * float(stride)
        counts = np.maximum(every, counts)
    used = np.flatnonzero(counts)
    firsts = merged(list(zip(counts[used].tolist(), moved[used].tolist(), strict=True)), most + 1)
    return [int(used[first]) << int(shift) for first in firsts[1:]]


def merged(groups: list[Exponents], most: int) -> list[int]:
    """Return the first group of each class.

    The pair of neighbours that loses least is joined, until joining costs more than another class.
    """
    firsts = list(range(len(groups)))
    costs = [_bits(group) for group in groups]
    joined = [_sum(a, b) for a, b in pairwise(groups)]
    joint = [_bits(group) for group in joined]
    while joined:
        extra = [both - a - b for both, a, b in zip(joint, costs, costs[1:], strict=False)]
        i = min(range(len(extra)), key=extra.__getitem__)
        if extra[i] > CLASS_BITS and len(firsts) <= most:
            break
        groups[i : i + 2], costs[i : i + 2] = [joined[i]], [joint[i]]
        del firsts[i + 1], joined[i], joint[i]
        for j in {i - 1, i} & set(range(len(joined))):
            joined[j] = _sum(groups[j], groups[j + 1])
            joint[j] = _bits(joined[j])
    return firsts


def _sum(a: Exponents, b: Exponents) -> Exponents:
    return a[0] + b[0], a[1] + b[1]


def _bits(group: Exponents) -> float:
    """Return the entropy of a group's numbers, if they are geometrically distributed."""
    count, total = group
    mean = total / count
    return count * ((1 + mean) * math.log2(1 + mean) - (mean * math.log2(mean) if mean else 0.0))


def bounds_packed(bounds: list[int]) -> bytes:
    return b"".join(map(number, [len(bounds), *bounds]))


def bounds_read(reader: PayloadReader, kind: NumberKind) -> list[int]:
    bounds = [reader.number(most=(1 << kind.width) - 1) for _ in range(reader.number(most=MOST_READ))]
    if bounds != sorted(bounds):
        raise DamagedPayload("payload holds classes that are not in order")
    return bounds
