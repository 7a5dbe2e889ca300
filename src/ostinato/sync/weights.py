"""Tensors as the bytes that are compared, digested and sent.

Bits are sent and not values, so the payloads of NaNs and -0.0 arrive too.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blob:
    """One tensor; `data` holds its row-major bytes, shape [bytes]."""

    dtype: str
    shape: tuple[int, ...]
    data: Bytes
    digest: str
    """xxh3-128 of `data`, 32 hexadecimal digits."""

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize


Blobs = Mapping[str, Blob]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSnapshot:
    """The weights of a committed version, as its publisher and its readers hold them."""

    version: int
    blobs: Blobs


def to_blobs(tensors: Mapping[str, torch.Tensor], *, copy: bool) -> dict[str, Blob]:
    """Return tensors as blobs, as copies or sharing memory.

    Raises TypeError for a dtype without a wire form.
    """
    return {name: _to_blob(name, tensor, copy=copy) for name, tensor in tensors.items()}


def _to_blob(name: str, tensor: torch.Tensor, *, copy: bool) -> Blob:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES or tensor.layout is not torch.strided:
        raise TypeError(
            f"tensor {name!r} is {tensor.layout} {dtype}; only dense {', '.join(DTYPES)} can be sent"
        )
    # An empty tensor may have a stride that cannot be viewed as bytes.
    flat = tensor.detach().cpu().contiguous().reshape(-1) if tensor.numel() else torch.empty(0)
    data = flat.view(torch.uint8).numpy()
    return make_blob(dtype, tuple(tensor.shape), data.copy() if copy else data)


def make_blob(dtype: str, shape: tuple[int, ...], data: Bytes) -> Blob:
    return Blob(dtype=dtype, shape=shape, data=data, digest=xxhash.xxh3_128_hexdigest(data.data))


def to_tensors(blobs: Blobs) -> dict[str, torch.Tensor]:
    """Return tensors that share memory with the blobs."""
    return {name: _to_tensor(blob) for name, blob in blobs.items()}


def _to_tensor(blob: Blob) -> torch.Tensor:
    dtype = DTYPES[blob.dtype]
    if not blob.data.size:
        return torch.empty(blob.shape, dtype=dtype)
    return torch.from_numpy(blob.data).view(dtype).reshape(blob.shape)


class Digested(Protocol):
    """One item of a state root: a tensor, or the entry of a tensor in a manifest."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def digest(self) -> str: ...


def state_root(blobs: Mapping[str, Digested]) -> str:
    """Return the SHA-256 over every name, dtype, shape and digest, sorted by name.

    Equal state roots mean equal weights.
    """
    rows = sorted((name, blob.dtype, blob.shape, blob.digest) for name, blob in blobs.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
