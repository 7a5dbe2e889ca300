"""Where to divide values into classes: neighbouring exponents are together unless apart they are cheaper."""

import math
from itertools import pairwise

import numpy as np

from ostinato.sync.codec.classes import magnitudes
from ostinato.sync.codec.ordinal import Ints, Kind, Words
from ostinato.sync.codec.payload import DamagedPayload, Reader, number

FEW = 64
"""With fewer changed values than this, one class will do."""
SAMPLE, LARGEST_STEP = 1 << 14, 1 << 12
MOST_READ = 15
"""Bitmaps of more classes would outgrow the tensor."""
CLASS_BITS = 120.0
"""What one more class costs in its headers."""

Group = tuple[float, float]
"""How many values, and by how many steps they moved together."""


def bounds_for(kind: Kind, words: Words, old: Words, steps: Ints, most: int) -> list[int]:
    """At most `most` rising bounds, see `magnitudes`.

    `old` are the changed ones among `words` before, `steps` ≥ 1 how far they moved; the others are sampled.
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


def merged(groups: list[Group], most: int) -> list[int]:
    """The first of each class: the pair that loses least is joined until joining costs more than a class."""
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


def _sum(a: Group, b: Group) -> Group:
    return a[0] + b[0], a[1] + b[1]


def _bits(group: Group) -> float:
    """Entropy of so many numbers of a geometric distribution that sum up to this."""
    count, total = group
    mean = total / count
    return count * ((1 + mean) * math.log2(1 + mean) - (mean * math.log2(mean) if mean else 0.0))


def bounds_packed(bounds: list[int]) -> bytes:
    return b"".join(map(number, [len(bounds), *bounds]))


def bounds_read(reader: Reader, kind: Kind) -> list[int]:
    bounds = [reader.number(most=(1 << kind.width) - 1) for _ in range(reader.number(most=MOST_READ))]
    if bounds != sorted(bounds):
        raise DamagedPayload("payload holds classes in no order")
    return bounds
