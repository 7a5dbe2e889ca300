"""The difference between two sets of weights, as a set of tensors that is sent to another process.

This module runs in both processes, so it imports nothing but torch. The names say what a tensor means: `NAME`
is a whole tensor; `NAME|at` and `NAME|to` are flat positions and their new values.
"""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

AT, TO = "|at", "|to"
SPARSE = 3
"""A tensor is sent whole once one value in this many has changed, because positions take more than values."""

Weights = Mapping[str, Tensor]


def difference(old: Weights, new: Weights) -> dict[str, Tensor]:
    """Return the patch that turns `old` into `new`, bit for bit; unchanged tensors are left out."""
    patch: dict[str, Tensor] = {}
    for name, tensor in new.items():
        before = old.get(name)
        if before is None or (before.dtype, before.shape) != (tensor.dtype, tensor.shape):
            patch[name] = tensor.contiguous()
            continue
        at = torch.nonzero(_bits(before) != _bits(tensor)).flatten()
        if len(at) * SPARSE > tensor.numel():
            patch[name] = tensor.contiguous()
        elif len(at):
            patch[name + AT] = at
            patch[name + TO] = tensor.flatten()[at]
    return patch


def applied(old: Weights, patch: Weights) -> dict[str, Tensor]:
    """Return `old` with the patch applied; `old` itself and its tensors stay as they are."""
    new = dict(old)
    for name, tensor in patch.items():
        if name.endswith(AT):
            whole = name.removesuffix(AT)
            flat = old[whole].flatten().clone()
            flat[tensor] = patch[whole + TO]
            new[whole] = flat.view(old[whole].shape)
        elif not name.endswith(TO):
            new[name] = tensor
    return new


def digest(weights: Weights) -> str:
    """Return the SHA-256 over every name, dtype, shape and byte, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _bits(tensor: Tensor) -> Tensor:
    """Return the same memory as integers, so that NaN equals itself and -0.0 differs from 0.0."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(-1).view(whole[tensor.element_size()])
