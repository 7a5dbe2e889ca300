"""A serving copy in 8 bits: quantise first, then publish the changes of the codes and scales.

A reader that quantised for itself would have to do it exactly as the sender does, and a delta of the wide
weights would be larger than one of the codes. The codes are symmetric, with one scale per row. A scale is
rounded up to bfloat16: then it stays the same in nearly all steps, instead of changing whenever the largest
weight of its row does, and the codes stay the same with it. That costs at most 1/128 of the resolution.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = ".scale"
"""The scales of `x` are named `x.scale`."""
LARGEST = 127


def quantised(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return codes int8 [rows, columns] and scales bfloat16 [rows] of each matrix; other tensors in bfloat16.

    Raises ValueError for weights that are not finite.
    """
    narrow: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and tensor.is_floating_point():
            narrow[name], narrow[name + SCALE] = codes(name, tensor)
        else:
            narrow[name] = tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
    return narrow


def codes(name: str, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest multiple of its row's scale to each weight, ties to even, and the scales.

    No weight exceeds 127 scales of its row.
    """
    wide = matrix.detach().float()
    largest = wide.abs().amax(1) if wide.shape[1] else wide.new_zeros(len(wide))
    if not largest.isfinite().all():
        raise ValueError(f"{name} holds values that are not finite: it cannot be quantised")
    scale = rounded_up(largest / LARGEST)
    scale[scale == 0] = 1
    return (wide / scale.float()[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scale


def rounded_up(values: Tensor) -> Tensor:
    """Return the least bfloat16 that is not below each value ≥ 0 of float32."""
    return ((values.view(torch.int32) + 0xFFFF) >> 16).to(torch.int16).view(torch.bfloat16)


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights in float32 that `quantised` ones stand for; others as they are."""
    return {
        name: tensor.float() * tensors[name + SCALE].float()[:, None] if name + SCALE in tensors else tensor
        for name, tensor in tensors.items()
        if name.removesuffix(SCALE) not in tensors or not name.endswith(SCALE)
    }
