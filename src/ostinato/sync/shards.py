"""Weights of which every rank holds some rows. Each rank publishes its rows; readers put them together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ostinato.sync.errors import DigestMismatch

SEPARATOR = "@"
"""The sign between a tensor's name and its rows: `layer.weight@128/512` starts at row 128 of 512."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Rows `start`, `start + 1`, … of a tensor with `rows` rows; `tensor` has the shape [own rows, …].

    >>> Shard(tensor=torch.zeros(2, 3), start=4, rows=8).rows
    8
    """

    tensor: torch.Tensor
    start: int
    rows: int


def flatten(tensors: Mapping[str, torch.Tensor | Shard]) -> dict[str, torch.Tensor]:
    """Return tensors by name, each shard under a name with its rows. Raises ValueError for such a name."""
    odd = [name for name in tensors if SEPARATOR in name]
    if odd:
        raise ValueError(f"tensor {odd[0]!r}: a name must not contain {SEPARATOR!r}")
    return {
        f"{name}{SEPARATOR}{value.start}/{value.rows}" if isinstance(value, Shard) else name: (
            value.tensor if isinstance(value, Shard) else value
        )
        for name, value in tensors.items()
    }


def assemble(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return whole tensors from the shards of all ranks; a tensor that was never split shares its memory.

    Raises DigestMismatch when rows are missing or there twice.
    """
    whole = {name: tensor for name, tensor in tensors.items() if SEPARATOR not in name}
    shards: dict[str, list[tuple[int, int, torch.Tensor]]] = {}
    for name, tensor in tensors.items():
        if SEPARATOR in name:
            owner, _, place = name.partition(SEPARATOR)
            start, rows = map(int, place.split("/"))
            shards.setdefault(owner, []).append((start, rows, tensor))
    return whole | {name: _joined(name, rows) for name, rows in shards.items()}


def whole_shape(name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the name and shape of the whole tensor that `name`, of this shape, is or is a shard of."""
    owner, _, place = name.partition(SEPARATOR)
    return (owner, (int(place.split("/")[1]), *shape[1:])) if place else (name, shape)


def _joined(name: str, shards: Iterable[tuple[int, int, torch.Tensor]]) -> torch.Tensor:
    rows = sorted(shards, key=lambda shard: (shard[0], shard[2].shape[0]))
    at = 0
    for start, total, tensor in rows:
        if start != at or total != rows[0][1]:
            raise DigestMismatch(
                f"tensor {name!r}", f"a shard from row {at}", f"one from row {start} of {total}"
            )
        at += tensor.shape[0]
    if at != rows[0][1]:
        raise DigestMismatch(f"tensor {name!r}", f"{rows[0][1]} rows", f"{at}")
    return torch.cat([tensor for _, _, tensor in rows])
