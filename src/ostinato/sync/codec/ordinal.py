"""Values as whole numbers in the order of the values, so that a small step is a small difference.

The bits of a float are sign and magnitude, and magnitudes are ordered like their bits. So the bits are read
as a signed integer, and all bits but the sign of a negative one are flipped. Unlike the usual map this one
distinguishes -0.0 (it becomes -1) from 0.0, and every NaN from every other: values with different bits have
different ordinals, and no value needs an escape.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.sync.weights import DTYPES, Blob

Words = NDArray[np.unsignedinteger]
"""Bit patterns, one per value."""
Ints = NDArray[np.int64]

MANTISSA_BITS = {"float32": 23, "bfloat16": 7, "float16": 10, "float8_e4m3fn": 3, "float8_e5m2": 2}
UNORDERED = {"float64", "int64"}
"""The dtypes without ordinals: differences of 64-bit values do not fit into 64 bits, and no weights have
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberKind:
    """The order of the bit patterns of one dtype.

    >>> NumberKind(width=16, mantissa=7, signed=True).ordinals(np.array([0x0001, 0x8000], np.uint16))
    array([ 1, -1], dtype=int16)
    """

    width: int
    """The bits of a value: 8, 16 or 32."""
    mantissa: int | None
    """The bits of the mantissa; None for whole numbers."""
    signed: bool

    def ordinals(self, words: Words) -> NDArray[np.integer]:
        """Return ordinals in the narrowest type; widen them before taking differences."""
        if not self.signed:
            return words
        return self._flipped(words.view(f"i{self.width // 8}"))

    def words(self, ordinals: NDArray[np.integer]) -> Words:
        """Return the words of ordinals, of which only the lowest bits count, as many as a value has."""
        if not self.signed:
            return ordinals.astype(f"u{self.width // 8}")
        return self._flipped(ordinals.astype(f"i{self.width // 8}")).view(f"u{self.width // 8}")

    def _flipped(self, signed: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
        """Flip the bits below the sign of negative numbers, which is its own inverse since the sign stays."""
        if self.mantissa is None:
            return signed
        one = signed.dtype.type
        return signed ^ (signed >> one(self.width - 1) & np.iinfo(signed.dtype).max)


def word_dtype(dtype: str) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"<u{DTYPES[dtype].itemsize}")


def kind_of(dtype: str) -> NumberKind | None:
    """Return the order of a dtype; None where differences are not taken."""
    if dtype in UNORDERED:
        return None
    mantissa = MANTISSA_BITS.get(dtype)
    signed = mantissa is not None or dtype.startswith("int")
    return NumberKind(width=8 * DTYPES[dtype].itemsize, mantissa=mantissa, signed=signed)


def words_of(blob: Blob) -> Words:
    """Return the bit patterns of a tensor, shape [values]."""
    return blob.data.view(word_dtype(blob.dtype))
