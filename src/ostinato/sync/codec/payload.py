"""The bytes of a payload: whole numbers of variable length, arrays, and a checksum over all of it.

A reader never takes more bytes than there are, and every count is checked against the tensor before memory is
allocated. So a damaged payload ends in `DamagedPayload` and costs no more memory than the tensor itself.
"""

import numpy as np
import xxhash
from numpy.typing import NDArray

CHECK_BYTES = 4
LONGEST_NUMBER = 9
"""The most bytes of a number: 63 bits, as many as an index may have."""


class DamagedPayload(ValueError):  # noqa: N818
    """The codec did not write this payload, or its base does not fit. Nothing was decoded."""


def sealed(body: bytes | bytearray) -> bytes:
    """Return `body` followed by its xxh32."""
    return bytes(body) + xxhash.xxh32_digest(body)


def opened(payload: bytes) -> "PayloadReader":
    """Return a reader of the body. Raises DamagedPayload unless the checksum fits."""
    body, check = payload[:-CHECK_BYTES], payload[-CHECK_BYTES:]
    if len(payload) < CHECK_BYTES or xxhash.xxh32_digest(body) != check:
        raise DamagedPayload(f"payload of {len(payload)} bytes: its checksum does not fit")
    return PayloadReader(body)


def number(value: int) -> bytes:
    """Return `value` ≥ 0 in seven bits per byte, the lowest first (LEB128)."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class PayloadReader:
    """Reads a body from front to back."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if count > len(self._body) - self._at:
            raise DamagedPayload(f"payload ends at byte {len(self._body)}, {count} more were expected")
        self._at += count
        return self._body[self._at - count : self._at]

    def rest(self) -> bytes:
        return self.take(len(self._body) - self._at)

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self, most: int) -> int:
        """Return the next number. Raises DamagedPayload unless it lies between 0 and `most`."""
        value = 0
        for i in range(LONGEST_NUMBER):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                break
        if byte >= 0x80 or value > most:
            raise DamagedPayload(f"payload holds a number above {most} at byte {self._at}")
        return value

    def array(self, dtype: np.dtype[np.unsignedinteger], count: int) -> NDArray[np.unsignedinteger]:
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def end(self) -> None:
        if self._at != len(self._body):
            raise DamagedPayload(f"payload goes on after byte {self._at}")
