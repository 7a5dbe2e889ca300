"""The architecture of a checkpoint: the dtype and shape of every tensor, equal for all its versions."""

from collections.abc import Mapping

import torch

from ostinato.sync.chain.manifest import Patch
from ostinato.sync.errors import OtherArchitecture
from ostinato.sync.shards import whole_shape

Signature = Mapping[str, tuple[str, tuple[int, ...]]]
SHOWN = 3
"""The number of differences that an error names."""


def signature_of(tensors: Mapping[str, torch.Tensor]) -> Signature:
    return {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def patch_signature(patch: Patch) -> Signature:
    """Return the signature of the whole tensors, also when they are sharded."""
    rows = [(*whole_shape(entry.name, entry.shape), entry.dtype) for entry in patch.tensors]
    return {name: (dtype, shape) for name, shape, dtype in rows}


def check_architecture(what: str, actual: Signature, like: Signature) -> None:
    """Raise OtherArchitecture with the first differences, if there are any."""
    differences = [
        *(f"it has {name!r}" for name in actual.keys() - like.keys()),
        *(f"it lacks {name!r}" for name in like.keys() - actual.keys()),
        *(
            f"{name!r} is {_text(actual[name])}, not {_text(like[name])}"
            for name in like.keys() & actual.keys()
            if actual[name] != like[name]
        ),
    ]
    if differences:
        shown = "; ".join(sorted(differences)[:SHOWN])
        more = f"; {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise OtherArchitecture(f"{what} is of another architecture: {shown}{more}; refused")


def _text(kind: tuple[str, tuple[int, ...]]) -> str:
    dtype, shape = kind
    return f"{dtype} {list(shape)}"
