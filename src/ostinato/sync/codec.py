"""One tensor against its predecessor: `same`, `xor` or `full`. Lossless for every dtype.

`xor` and `full` split the values into byte planes before zstd: after a small step sign, exponent and high
mantissa hardly change, so their planes of the xor are nearly all zero.
"""

import math

import numpy as np
import zstandard

from ostinato.sync.weights import DTYPES, Blob, Bytes, make_blob

LEVEL = 1
SAME, XOR, FULL = "same", "xor", "full"


def encode(old: Blob | None, new: Blob) -> tuple[str, bytes]:
    """The form of `new` for a reader who holds `old`: its codec and payload."""
    if old is None or (old.dtype, old.shape) != (new.dtype, new.shape):
        return FULL, _pack(new.data, new.itemsize)
    changed = old.data ^ new.data
    if not changed.any():
        return SAME, b""
    payload = _pack(changed, new.itemsize)
    if len(payload) < new.data.size:
        return XOR, payload
    return FULL, _pack(new.data, new.itemsize)


def decode(codec: str, old: Blob | None, payload: bytes, dtype: str, shape: tuple[int, ...]) -> Blob:
    """The inverse of `encode`. Raises ValueError when the payload is damaged or `old` does not fit."""
    itemsize = DTYPES[dtype].itemsize
    size = math.prod(shape) * itemsize
    if codec == FULL:
        return make_blob(dtype, shape, _unpack(payload, size, itemsize))
    if old is None or (old.dtype, old.shape) != (dtype, shape):
        raise ValueError(f"{codec} needs a {dtype} base of shape {shape}")
    if codec == SAME:
        return old
    changed = _unpack(payload, size, itemsize)
    return make_blob(dtype, shape, np.bitwise_xor(changed, old.data, out=changed))


def _pack(data: Bytes, itemsize: int) -> bytes:
    planes = np.ascontiguousarray(data.reshape(-1, itemsize).T)
    return zstandard.ZstdCompressor(level=LEVEL).compress(planes.data)


def _unpack(payload: bytes, size: int, itemsize: int) -> Bytes:
    try:
        planes = zstandard.ZstdDecompressor().decompress(
            payload, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise ValueError(f"payload does not decompress: {error}") from error
    if len(planes) != size:
        raise ValueError(f"payload holds {len(planes)} bytes, the tensor has {size}")
    return np.frombuffer(planes, np.uint8).reshape(itemsize, -1).T.flatten()
