"""Routes as vLLM returns them, without a vLLM: numbers that do not fit into two bytes are refused."""

import base64
import io

import numpy as np
import pytest

from ostinato.engine.base import EngineError
from ostinato.engine.vllm.engine import routes_of


def told(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "i8"])
def test_routes_are_two_bytes_for_every_integer_type_of_vllm(dtype: str) -> None:
    chosen = np.array([[[0, 255]], [[7, 200]]], dtype)
    assert np.frombuffer(routes_of(told(chosen)), "<u2").tolist() == [0, 255, 7, 200]


def test_an_expert_beyond_one_byte_is_kept() -> None:
    assert np.frombuffer(routes_of(told(np.array([[[256, 65_535]]], "i4"))), "<u2").tolist() == [256, 65_535]


@pytest.mark.parametrize("number", [65_536, -1])
def test_a_number_that_would_wrap_is_refused(number: int) -> None:
    with pytest.raises(EngineError, match="is not a number below 65536"):
        routes_of(told(np.array([[[1, number]]], "i4")))


@pytest.mark.parametrize("array", [np.zeros((2, 2), "u2"), np.zeros((1, 1, 2), "f4")], ids=["shape", "type"])
def test_arrays_that_are_no_routes_are_refused(array: np.ndarray) -> None:
    with pytest.raises(EngineError, match="not numbers of experts"):
        routes_of(told(array))
