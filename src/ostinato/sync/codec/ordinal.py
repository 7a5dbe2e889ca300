"""Values as whole numbers in the order of the values, so that a small step is a small difference.

A float's bits are sign and magnitude, and magnitudes are ordered as their bits are: read as a signed integer,
all bits but the sign of a negative one are flipped. Unlike the usual map this one tells -0.0 (it becomes -1)
from 0.0 and every NaN from every other: what differs in bits differs in ordinal, and nothing needs an escape.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.weights import DTYPES, Blob

Words = NDArray[np.unsignedinteger]
"""Bit patterns, one a value."""
Ints = NDArray[np.int64]

MANTISSA_BITS = {"float32": 23, "bfloat16": 7, "float16": 10, "float8_e4m3fn": 3, "float8_e5m2": 2}
UNORDERED = {"float64", "int64"}
"""Differences of 64-bit values do not fit 64 bits; weights do not come in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How the bit patterns of one dtype are ordered.

    >>> Kind(width=16, mantissa=7, signed=True).ordinals(np.array([0x0001, 0x8000], np.uint16))
    array([ 1, -1], dtype=int16)
    """

    width: int
    """Bits of a value: 8, 16 or 32."""
    mantissa: int | None
    """Bits of the mantissa; None for whole numbers."""
    signed: bool

    def ordinals(self, words: Words) -> NDArray[np.integer]:
        """In the narrowest type; widen before taking differences."""
        if not self.signed:
            return words
        return self._flipped(words.view(f"i{self.width // 8}"))

    def words(self, ordinals: NDArray[np.integer]) -> Words:
        """The inverse; only the lowest bits of an ordinal count, as many as a value has."""
        if not self.signed:
            return ordinals.astype(f"u{self.width // 8}")
        return self._flipped(ordinals.astype(f"i{self.width // 8}")).view(f"u{self.width // 8}")

    def _flipped(self, signed: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
        """Its own inverse, since the sign stays."""
        if self.mantissa is None:
            return signed
        one = signed.dtype.type
        return signed ^ (signed >> one(self.width - 1) & np.iinfo(signed.dtype).max)


def word_dtype(dtype: str) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"<u{DTYPES[dtype].itemsize}")


def kind_of(dtype: str) -> Kind | None:
    """None where differences are not taken."""
    if dtype in UNORDERED:
        return None
    mantissa = MANTISSA_BITS.get(dtype)
    signed = mantissa is not None or dtype.startswith("int")
    return Kind(width=8 * DTYPES[dtype].itemsize, mantissa=mantissa, signed=signed)


def words_of(blob: Blob) -> Words:
    """The bit patterns of a tensor, shape [values]."""
    return blob.data.view(word_dtype(blob.dtype))
