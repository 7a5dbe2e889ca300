"""Codes and scales stand for the weights they were made of, and move as rarely as the weights allow."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.sync.quantise import LARGEST, quantised, restored, rounded_up


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        "up": torch.randn(64, 48, generator=random) * 0.02,
        "norm": torch.ones(48),
        "zero": torch.zeros(2, 3),
        "empty": torch.zeros(3, 0),
        "ids": torch.arange(4),
    }


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20))
def test_a_weight_is_restored_to_half_a_scale(row: list[float]) -> None:
    matrix = torch.tensor([row])
    small = quantised({"w": matrix})
    scale = small["w.scale"].float()
    assert (restored(small)["w"] - matrix).abs().max() <= 0.501 * scale
    assert float(matrix.abs().max() / scale) <= LARGEST + 1e-3


@given(st.floats(0, 2.0**126, width=32))
def test_rounding_up_goes_to_the_next_bfloat16(value: float) -> None:
    up = rounded_up(torch.tensor([value]))
    assert float(up) >= value
    below = (up.view(torch.int16) - 1).view(torch.bfloat16)
    assert value == 0 or float(below) < value


def test_tensors_that_are_no_matrix_stay() -> None:
    small = quantised(weights())
    assert set(small) == {"up", "up.scale", "norm", "zero", "zero.scale", "empty", "empty.scale", "ids"}
    assert (small["norm"].dtype, small["ids"].dtype) == (torch.bfloat16, torch.int64)
    assert set(restored(small)) == set(weights())
    assert not restored(small)["zero"].any()


def test_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="w holds values that are not finite"):
        quantised({"w": torch.tensor([[1.0, float("nan")]])})


def test_a_small_step_moves_few_codes_and_hardly_a_scale() -> None:
    before = torch.randn(512, 512, generator=torch.Generator().manual_seed(1)) * 0.02
    after = before + 1e-6 * torch.randn(512, 512, generator=torch.Generator().manual_seed(2))
    old, new = (quantised({"w": matrix}) for matrix in (before, after))
    assert int((old["w.scale"] != new["w.scale"]).sum()) <= 10
    assert 0 < int((old["w"] != new["w"]).sum()) < 0.02 * before.numel()


def test_a_reader_holds_the_codes_the_sender_made() -> None:
    objects = Objects.open("memory://")
    publisher = Publisher(objects)
    publisher.anchor(0, quantised(weights(0)))
    publisher.delta(1, quantised(weights(1)))
    held = restored(Subscriber(objects).fetch(1))
    assert all(torch.equal(held[name], tensor) for name, tensor in restored(quantised(weights(1))).items())
