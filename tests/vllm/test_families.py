"""Checkpoints that our own decoder did not write, served and swapped by a real vLLM.

Random ones of two families, in shards of bf16; SmolLM2 where `OSTINATO_SMOLLM2` names its directory.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from tests.engine.toolbox import request
from tests.vllm.install import PYTHON, missing
from tests.vllm.test_vllm import ENVIRONMENT

from ostinato.engine.base import LoadRefusedError
from ostinato.engine.loader import SyncLoader
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.model.tensor_files import TensorFiles
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.types import Completion, GenerateRequest

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
SMOLLM2 = os.environ.get("OSTINATO_SMOLLM2", "")
MAX_LEN = 128
EXACT = 1e-3
SHAPE = {
    "vocab_size": 270,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": MAX_LEN,
}


def written(directory: Path, family: str, seed: int, **more: Any) -> Path:
    """Write a random checkpoint in shards of bf16."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, **SHAPE, initializer_range=0.2, **more)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.5)
    model.to(torch.bfloat16).save_pretrained(directory, max_shard_size="60KB")
    assert len(list(directory.glob("*.safetensors"))) > 1
    Tokenizer.train(["calc.py"], 265).save(directory)
    return directory


def assert_scores(directory: Path, asked: GenerateRequest, got: Completion) -> None:
    """Assert that the log-probabilities are those of transformers in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ids = torch.tensor([asked.prompt_ids + got.ids])
    with torch.no_grad():
        logits = model(ids).logits[0, len(asked.prompt_ids) - 1 : -1]
    logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(got.ids)[:, None])[:, 0]
    assert (logprobs - torch.tensor(got.logprobs)).abs().max() < EXACT


@pytest_asyncio.fixture(
    params=[("llama", True), ("qwen2", False)], ids=["llama tied", "qwen2 untied"], loop_scope="module"
)
async def served(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[VllmEngine, Path, Path]]:
    """A vLLM on one checkpoint, its directory, and another checkpoint of the same shape."""
    family, tied = request.param
    first, second = (
        written(tmp_path / name, family, seed, tie_word_embeddings=tied)
        for seed, name in enumerate(("first", "second"))
    )
    engine = await VllmEngine.start(
        first, tmp_path / "logs", python=str(PYTHON), max_len=MAX_LEN, slots=8, environment=ENVIRONMENT
    )
    yield engine, first, second
    await engine.aclose()


async def test_a_foreign_checkpoint_is_served_and_swapped(
    served: tuple[VllmEngine, Path, Path], tmp_path: Path
) -> None:
    engine, first, second = served
    sent = request(1, length=20)
    assert_scores(first, sent, await engine.generate(sent))
    objects = Objects.open(tmp_path / "objects")
    publisher, loader = Publisher(objects), SyncLoader(engine, Subscriber(objects))
    publisher.anchor(1, dict(TensorFiles.open(second)))
    await loader.load(1)
    done = await engine.generate(sent)
    assert set(done.versions) == {1}
    assert_scores(second, sent, done)
    publisher.delta(2, dict(TensorFiles.open(first)))
    await loader.load(2)
    assert_scores(first, sent, await engine.generate(sent))
    await engine.swap(3, {name: tensor.float() for name, tensor in TensorFiles.open(second)})
    assert_scores(second, sent, await engine.generate(sent))
    await engine.swap(4, dict(TensorFiles.open(first)))
    other = dict(TensorFiles.open(second)) | {"model.norm.weight": torch.ones(3)}
    with pytest.raises(LoadRefusedError, match=r"model.norm.weight has shape \[3\]"):
        await engine.swap(5, other)
    with pytest.raises(LoadRefusedError, match="not finite"):
        await engine.swap(5, other | {"model.norm.weight": torch.full((64,), torch.nan)})
    assert_scores(first, sent, await engine.generate(sent))


@pytest.mark.skipif(not SMOLLM2, reason="OSTINATO_SMOLLM2 names no directory with SmolLM2")
async def test_smollm2_is_served_and_swapped(tmp_path: Path) -> None:
    directory = Path(SMOLLM2)
    engine = await VllmEngine.start(
        directory, tmp_path, python=str(PYTHON), max_len=MAX_LEN, slots=4, environment=ENVIRONMENT
    )
    try:
        sent = request(1, length=20, max_tokens=6)
        assert_scores(directory, sent, await engine.generate(sent))
        await engine.swap(1, {name: tensor.bfloat16() for name, tensor in TensorFiles.open(directory)})
        done = await engine.generate(sent)
        assert set(done.versions) == {1} and len(done.ids) == 6
    finally:
        await engine.aclose()
