"""Tensors become bytes and come back without the loss of a bit."""

import pytest
import torch
from tests.sync.builders import same_bits, weights

from ostinato.sync.weights import state_root, to_blobs, to_tensors


def test_tensors_come_back() -> None:
    assert same_bits(to_tensors(to_blobs(weights(1), copy=True)), weights(1))


def test_a_strided_view_is_read_in_its_own_order() -> None:
    tensors = {"t": torch.arange(6.0).reshape(2, 3).T, "column": torch.arange(6.0).reshape(2, 3)[:, 1]}
    assert same_bits(to_tensors(to_blobs(tensors, copy=False)), tensors)


def test_a_copy_is_independent_of_later_changes() -> None:
    tensors = weights(1)
    copied = to_blobs(tensors, copy=True)
    tensors["fixed"].zero_()
    assert same_bits(to_tensors(copied), weights(1))


@pytest.mark.parametrize("tensor", [torch.zeros(2, dtype=torch.complex64), torch.zeros(2).to_sparse()])
def test_a_dtype_without_a_wire_form_is_named(tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="tensor 'w' is torch"):
        to_blobs({"w": tensor}, copy=True)


def test_the_root_changes_with_anything_that_matters() -> None:
    base = {"a": torch.zeros(4), "b": torch.ones(4)}
    others = [
        {"a": torch.zeros(4), "b": torch.zeros(4)},
        {"a": torch.zeros(2, 2), "b": torch.ones(4)},
        {"a": torch.zeros(4, dtype=torch.int32), "b": torch.ones(4)},
        {"a": torch.ones(4), "b": torch.zeros(4)},
        {"a": -torch.zeros(4), "b": torch.ones(4)},
        {"a": torch.zeros(4)},
    ]
    roots = {state_root(to_blobs(tensors, copy=False)) for tensors in [base, *others]}
    assert len(roots) == 1 + len(others)
    assert state_root(to_blobs(dict(reversed(base.items())), copy=False)) in roots
