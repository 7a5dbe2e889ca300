"""A checkpoint of somebody else is checked before anything starts, and its weights are linked, not copied."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.foreign import checkpoint

from ostinato.config import read
from ostinato.loop.config import RunConfig, StartConfig
from ostinato.loop.run import START, Run
from ostinato.loop.stages.prepare import PrepareError, check_start, prepare
from ostinato.train.config import TrainerConfig


def of(path: Path) -> RunConfig:
    return RunConfig(model=StartConfig(path=path))


def without(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def of_another_shape(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))


def with_half_its_shards(path: Path) -> None:
    (path / "model.safetensors").rename(path / "model-00001-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def without_control_tokens(path: Path) -> None:
    text = (path / "tokenizer.json").read_text()
    (path / "tokenizer.json").write_text(text.replace("<|im_start|>", "<|other|>"))


def damaged(path: Path) -> None:
    (path / "config.json").write_text("{")


async def test_the_weights_of_a_checkpoint_are_linked_and_the_rest_is_copied(tmp_path: Path) -> None:
    config, run = of(checkpoint(tmp_path / "llama", "Llama")), Run(directory=tmp_path / "run")
    check_start(config)
    await prepare(config, run)
    start = run.checkpoint(START)
    assert (start / "model.safetensors").readlink() == tmp_path / "llama" / "model.safetensors"
    assert not (start / "config.json").is_symlink()
    assert {path.name for path in start.iterdir()} == {path.name for path in (tmp_path / "llama").iterdir()}
    await prepare(replace(config, seed=2), run)


async def test_the_draft_of_a_checkpoint_comes_along_where_one_is_taught(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "llama", "Llama")
    (path / "draft").mkdir()
    (path / "draft" / "config.json").write_text("{}")
    for name, there in (("none", False), ("joint", True)):
        run = Run(directory=tmp_path / name)
        await prepare(replace(of(path), trainer=TrainerConfig(draft=name)), run)  # type: ignore[arg-type]
        assert (run.checkpoint(START) / "draft" / "config.json").exists() == there


async def test_a_version_of_another_run_is_version_0_of_this_one(tmp_path: Path) -> None:
    path, run = checkpoint(tmp_path / "llama", "Llama"), Run(directory=tmp_path / "run")
    lineage = {"version": 16, "parent": 0, "digest": "9f", "harness": "a"}
    (path / "ostinato.json").write_text(json.dumps(lineage))
    await prepare(of(path), run)
    adopted = json.loads((run.checkpoint(START) / "ostinato.json").read_text())
    assert adopted == lineage | {"version": 0, "parent": None}
    assert json.loads((path / "ostinato.json").read_text()) == lineage


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("config.json"), "is no checkpoint: config.json is missing"),
        (without("tokenizer.json"), "is no checkpoint: tokenizer.json is missing"),
        (without("model.safetensors"), "not whole: model.safetensors is missing"),
        (with_half_its_shards, "not whole: model-00002-of-00002.safetensors is missing"),
        (of_another_shape, "cannot be used: .*mamba"),
        (without_control_tokens, "cannot be used: .*<|im_start|>"),
        (damaged, "cannot be used"),
    ],
)
def test_a_directory_that_is_no_usable_checkpoint_is_refused(
    change: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    path = checkpoint(tmp_path / "llama", "Llama")
    change(path)
    with pytest.raises(PrepareError, match=f"model.path is {path}.*{reason}"):
        check_start(of(path))


def test_an_engine_that_cannot_be_had_is_refused() -> None:
    def engine(**settings: object) -> RunConfig:
        return read(RunConfig, {"engine": settings}, "the test")

    with pytest.raises(PrepareError, match=r"\[engine\]: bfloat16, arguments and tensor_parallel"):
        check_start(engine(backend="embedded", dtype="bfloat16"))
    with pytest.raises(PrepareError, match=r"engine.python is /nowhere/python, which cannot be run"):
        check_start(engine(backend="vllm", python="/nowhere/python"))
    with pytest.raises(PrepareError, match=r"engine.backend is vllm, and .* has no vLLM"):
        check_start(engine(backend="vllm", python=sys.executable))


def test_a_gguf_file_is_to_be_imported_first(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="ostinato weights import"):
        check_start(of(tmp_path / "SmolLM2.gguf"))
