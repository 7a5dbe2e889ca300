"""The file that `ostinato init` writes is one that `ostinato run` takes; it is never written over another."""

from pathlib import Path

import pytest
from fuzz.foreign import checkpoint

from ostinato.cli import main
from ostinato.config import load
from ostinato.loop.config import RunConfig, check
from ostinato.loop.stages.prepare import check_start


def test_without_a_model_it_suits_the_tiny_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    assert main(["init", str(file)]) == 0
    assert f"then: ostinato run {file}" in capsys.readouterr().out.replace("\n", " ")
    config = load(RunConfig, file)
    check(config)
    check_start(config)
    assert config.model.path is None and config.engine.backend == "embedded"
    assert f"ostinato run {file}" in file.read_text() and "cores" in file.read_text()
    assert main(["init", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_with_a_model_it_keeps_to_the_models_length(tmp_path: Path) -> None:
    path, file = checkpoint(tmp_path / "llama", "Llama"), tmp_path / "llama.toml"
    assert main(["init", str(file), "--model", str(path)]) == 0
    config = load(RunConfig, file)
    check(config)
    check_start(config)
    assert config.model.path == path
    assert config.engine.context == 4096 and config.harness.max_context == 3072


def test_a_model_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "run.toml"), "--model", str(tmp_path)]) == 2
    assert "is no checkpoint: config.json is missing" in capsys.readouterr().err
    assert not (tmp_path / "run.toml").exists()
