"""A patch turns one set of weights into another, bit for bit, and sends only what changed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ostinato.engine.vllm.patch import applied, difference, digest

TYPES = {4: torch.float32, 2: torch.bfloat16, 1: torch.int8}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of one shape as raw bytes, so with every NaN and both zeros; some values differ."""
    size = draw(st.sampled_from(sorted(TYPES)))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6))
    old = draw(hnp.arrays(np.uint8, (*shape, size)))
    new, mask = draw(hnp.arrays(np.uint8, (*shape, size))), draw(hnp.arrays(np.bool_, shape))
    raw = old, np.where(mask[..., None], new, old)
    first, second = (torch.from_numpy(a.flatten()).view(TYPES[size]).reshape(shape) for a in raw)
    return first, second


@given(st.lists(pairs(), max_size=4))
def test_a_patch_restores_every_bit(tensors: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    old = {f"w{i}": a for i, (a, _) in enumerate(tensors)}
    new = {f"w{i}": b for i, (_, b) in enumerate(tensors)}
    old["empty"] = new["empty"] = torch.empty(0, 3)
    before = digest(old)
    assert digest(applied(old, difference(old, new))) == digest(new)
    assert digest(old) == before


def test_only_changes_are_sent() -> None:
    old = {"same": torch.ones(100), "little": torch.zeros(100), "much": torch.zeros(100)}
    new = old | {"little": torch.zeros(100).index_fill(0, torch.tensor([3]), 2.0), "much": torch.ones(100)}
    patch = difference(old, new)
    assert {name: tensor.numel() for name, tensor in patch.items()} == {
        "little|at": 1,
        "little|to": 1,
        "much": 100,
    }


@pytest.mark.parametrize("change", ["value", "name", "shape", "dtype"])
def test_the_digest_sees_every_difference(change: str) -> None:
    weights = {"w": torch.zeros(4)}
    others = {
        "value": {"w": torch.tensor([0.0, 0, 0, -0.0])},
        "name": {"v": torch.zeros(4)},
        "shape": {"w": torch.zeros(2, 2)},
        "dtype": {"w": torch.zeros(4, dtype=torch.int32)},
    }
    assert digest(weights) != digest(others[change])
