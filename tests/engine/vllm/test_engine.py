"""What of the vLLM engine can be tested without a vLLM: routes, the check of a checkpoint, the handover.

Covers engine/vllm/engine.py and engine/vllm/handover.py.
"""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch

from ostinato.engine.base import EngineError
from ostinato.engine.vllm.engine import VllmEngine, routes_of
from ostinato.engine.vllm.handover import digest, read, room_for
from ostinato.model.tensor_files import CheckpointError, write_tensors


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


async def start_on(directory: Path) -> None:
    engine = await VllmEngine.start(directory, directory / "logs", python="/bin/false")
    await engine.aclose()


async def test_a_checkpoint_is_examined_before_vllm_is_started(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config.json is missing"):
        await start_on(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(CheckpointError, match="no vocab_size"):
        await start_on(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 8}')
    tensors = [(f"w{number}", torch.ones(8, 8)) for number in range(3)]
    write_tensors(tmp_path, tensors, max_shard_bytes=300)
    with pytest.raises(EngineError, match="it ended with 1"):
        await start_on(tmp_path)
    next(tmp_path.glob("model-00002-*")).unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003.safetensors is missing"):
        await start_on(tmp_path)
    write_tensors(tmp_path, [*tensors, ("w3", torch.full((8,), torch.nan))])
    with pytest.raises(CheckpointError, match="w3 holds NaN"):
        await start_on(tmp_path)


def test_a_version_is_written_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.engine.vllm.handover.MEMORY", tmp_path)
    assert room_for(1) == str(tmp_path)
    with pytest.raises(OSError, match=r"no room for 1000000.0 GB"):
        room_for(10**15)


def test_what_was_handed_over_is_read_back_to_the_bit(tmp_path: Path) -> None:
    """Covers engine/vllm/handover.py: names, types and bits, and a digest that sees a change."""
    tensors = {"b": torch.randn(3, 5).bfloat16(), "a": torch.randn(7), "empty": torch.empty(0, 3)}
    write_tensors(tmp_path, tensors.items(), max_shard_bytes=40)
    back = dict(read(tmp_path))
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    before = digest(tmp_path)
    assert before == digest(tmp_path)
    write_tensors(tmp_path, (tensors | {"a": torch.zeros(7)}).items(), max_shard_bytes=40)
    assert digest(tmp_path) != before
