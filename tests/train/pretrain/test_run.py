"""A whole run of continued pretraining, on both trainers: killed, it ends in the weights of one that was not.

Covers train/pretrain/config.py and train/pretrain/commands.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.toolbox import encoder, no_tasks, program, repository

from ostinato import cli
from ostinato.config import ConfigError, dump, read
from ostinato.data.build import build
from ostinato.data.config import CorpusConfig, CorpusError, CorpusSource
from ostinato.loop.config import RunConfig, StartConfig
from ostinato.loop.stages.prepare import check_start
from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig, Yarn
from ostinato.model.decoder import Decoder
from ostinato.train.base import StateError
from ostinato.train.config import TrainerConfig
from ostinato.train.pretrain.config import PretrainPhase, PretrainProcess
from ostinato.train.pretrain.run import main, train

FSDP, RANKS = TrainerConfig(kind="fsdp"), TrainerConfig(kind="fsdp", ranks=2)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a checkpoint and a corpus."""
    folder = tmp_path_factory.mktemp("pretrain")
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=encoder().vocab_size, hidden_size=32, layers=2, heads=2, kv_heads=1, head_dim=16,
        intermediate_size=64, qk_norm=False, max_positions=64,
    )  # fmt: skip
    save(folder / "start", Decoder(config), encoder(), version=0, harness="9f")
    for name, first in (("code", 0), ("held", 50)):
        repository(folder / name, {f"{n}.py": program(n) for n in range(first, first + 4)})
    sources = tuple(
        CorpusSource(name=name, repositories=(folder / name,), licence="MIT", held_out=name == "held")
        for name in ("code", "held")
    )
    build(CorpusConfig(sources=sources, tokenizer=folder), folder / "corpus", lambda _: encoder(), no_tasks)
    return folder


def settings(home: Path, out: Path, **changed: Any) -> PretrainProcess:
    phases = (
        PretrainPhase(length=64, tokens=64 * 4 * 6, batch_tokens=256, learning_rate=3e-3),
        PretrainPhase(length=128, tokens=128 * 2 * 4, batch_tokens=256, learning_rate=1e-3, rope="yarn"),
    )
    values: dict[str, Any] = {"start": home / "start", "corpus": home / "corpus", "phases": phases}
    more = {"save_every": 2, "evaluate_every": 3, "evaluate_rows": 3}
    return PretrainProcess(out=out, **values | more | changed)


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def journal(run_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of a run that measured held-out text."""
    lines = (run_dir / "pretrain.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "bits" in row]


def stops(after: int) -> Any:
    """Return what asks to stop after so many steps."""
    asked = iter([False] * after)
    return lambda: next(asked, True)


@pytest.mark.parametrize("trainer", [TrainerConfig(), FSDP], ids=["local", "fsdp"])
def test_a_run_that_was_stopped_ends_in_the_same_weights(
    trainer: TrainerConfig, home: Path, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    train(settings(home, tmp_path / "whole", trainer=trainer), lambda: False)
    parts = settings(home, tmp_path / "parts", trainer=trainer)
    for steps in (3, 4, 1):  # in a phase before a state, over the end of one, in the next
        train(parts, stops(steps))
        assert not parts.out.exists()
    train(parts, lambda: False)
    assert weights(parts.out) == weights(tmp_path / "whole")
    decoder, _, meta = load(parts.out)
    assert decoder.config.rope_scaling == Yarn(factor=2.0, original_positions=64)
    assert decoder.config.max_positions == 128 and meta.harness == "9f" and not list(tmp_path.glob("*.part"))


def test_what_is_learnt_shows_on_held_out_text_and_a_run_begins_with_it(home: Path, tmp_path: Path) -> None:
    train(settings(home, tmp_path / "out"), lambda: False)
    measured = journal(tmp_path / "out.run")
    assert [(row["step"], row["length"]) for row in measured] == [(n, 64) for n in (0, 3, 6)] + [
        (n, 128) for n in (6, 9, 10)
    ]
    assert measured[2]["bits"] < measured[0]["bits"] - 1
    assert list(measured[-1]["bits_by_position"]) == ["0", "64"]
    check_start(RunConfig(model=StartConfig(path=tmp_path / "out")))


def test_the_trainers_agree(home: Path, tmp_path: Path) -> None:
    """They have the same forward pass, the same loss and the same rate, and other AdamW states' layouts."""
    phases = (PretrainPhase(length=64, tokens=64 * 4 * 3, batch_tokens=256, learning_rate=1e-4),)
    for name, trainer in (("local", TrainerConfig()), ("fsdp", FSDP)):
        run = settings(home, tmp_path / name, phases=phases, trainer=trainer, evaluate_every=1)
        train(run, lambda: False)
    bits = [[row["bits"] for row in journal(tmp_path / f"{name}.run")] for name in ("local", "fsdp")]
    assert bits[0][0] == pytest.approx(bits[1][0], abs=1e-5) and len(bits[0]) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "trainer",
    [pytest.param(TrainerConfig(), id="local"), pytest.param(RANKS, id="ranks", marks=pytest.mark.deep)],
)
def test_a_process_that_is_killed_goes_on(trainer: TrainerConfig, home: Path, tmp_path: Path) -> None:
    whole = settings(home, tmp_path / "whole", trainer=trainer)
    killed = settings(home, tmp_path / "killed", trainer=trainer)
    for each in (whole, killed):
        (tmp_path / f"{each.out.name}.toml").write_text(dump(each))
    command = [sys.executable, "-m", "ostinato", "pretrain"]
    subprocess.run([*command, str(tmp_path / "whole.toml")], check=True, capture_output=True)
    process = subprocess.Popen([*command, str(tmp_path / "killed.toml")], start_new_session=True)
    states = tmp_path / "killed.run/states"
    while process.poll() is None and not list(states.glob("000000000[24]*")):
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed").exists()
    subprocess.run([*command, str(tmp_path / "killed.toml")], check=True, capture_output=True)
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_what_does_not_fit_is_refused_before_anything_is_trained(home: Path, tmp_path: Path) -> None:
    run = settings(home, tmp_path / "out")
    train(run, stops(3))
    with pytest.raises(StateError, match="holds a run of other settings"):
        train(settings(home, tmp_path / "out", seed=1), lambda: False)
    (tmp_path / "taken").mkdir()
    with pytest.raises(StateError, match="exists already"):
        train(settings(home, tmp_path / "taken"), lambda: False)
    with pytest.raises(CorpusError, match="ostinato data build"):
        train(settings(home, tmp_path / "other", corpus=tmp_path), lambda: False)
    other = encoder(("<|endoftext|>",))
    save(tmp_path / "start", load(home / "start")[0], other, version=0)
    with pytest.raises(StateError, match="another tokenizer"):
        train(settings(home, tmp_path / "other", start=tmp_path / "start"), lambda: False)
    long = (PretrainPhase(length=128, tokens=1000),)
    with pytest.raises(StateError, match="has 64 positions"):
        train(settings(home, tmp_path / "other", phases=long), lambda: False)
    assert not (tmp_path / "other").exists()


def test_the_command_says_what_is_wrong_in_one_line(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pretrain.toml"
    file.write_text(dump(settings(home, tmp_path / "out", corpus=tmp_path)))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert main(["--config", str(file)]) == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert "build a corpus there" in caplog.text
    with pytest.raises(SystemExit):
        cli.main(["pretrain", str(tmp_path / "nowhere.toml")])
    assert "cannot be read" in capsys.readouterr().err


def test_the_rate_rises_stays_and_falls() -> None:
    phase = PretrainPhase(length=10, tokens=1000, batch_tokens=10, learning_rate=1.0, warm_up=0.1, decay=0.5)
    rates = [phase.rate(step) for step in range(100)]
    assert rates[:11] == pytest.approx([n / 10 for n in range(1, 11)] + [1.0])
    assert set(rates[10:50]) == {1.0} and rates[50:] == pytest.approx([n / 50 for n in range(50, 0, -1)])


@pytest.mark.parametrize(
    "phase",
    [
        {"length": 1, "tokens": 100},
        {"length": 8, "tokens": 100, "warm_up": 0.6, "decay": 0.6},
        {"length": 8, "tokens": 100, "rope": "base"},
        {"length": 8, "tokens": 100, "rope_base": 1000.0},
    ],
)
def test_a_phase_that_cannot_be_meant_is_refused(phase: dict[str, Any]) -> None:
    paths = {"start": "a", "corpus": "b", "out": "c"}
    with pytest.raises(ConfigError):
        read(PretrainProcess, {**paths, "phases": [phase]}, "pretrain.toml")
