"""Covers loop/sft/config.py and loop/sft/commands.py too: `ostinato sft` from a file to a checkpoint."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from ostinato.cli import main
from ostinato.config import load
from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import RunConfig
from ostinato.loop.sft.config import SftRunConfig
from ostinato.loop.stages.dialect import literals
from ostinato.loop.stages.prepare import check_start
from ostinato.model.checkpoint import save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.tasks.pebble import generate, provide
from ostinato.types import SignalKind, Source

SETTINGS = """
start = "start"
steps = 12
profiles = ["core", "claude"]
fence = ["fence"]
[sources.pebbles]
tasks = "pebbles"
[sandbox]
backend = "process"
[sft]
learning_rate = 3e-3
batch = 4
induction = 0.0
rise_steps = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny start, tasks whose solutions are shown, and two of them in a fence, in the present folder."""
    words = [*literals(profile("core")), *literals(profile("claude"))]
    tokenizer = Tokenizer.train(["def alpha(a, b):\n    return a - b\n"], 700, words)
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, kv_heads=2, head_dim=8,
        intermediate_size=32, max_positions=4096,
    )  # fmt: skip
    save(tmp_path / "start", Decoder(config), tokenizer, version=0)
    for number in range(4):
        provide(generate("rename", "train", number), tmp_path / "pebbles" / str(number))
    provide(generate("rename", "train", 0), tmp_path / "fence" / "0")
    shutil.copytree(tmp_path / "start", tmp_path / "bare")
    bare = json.loads((tmp_path / "bare" / "tokenizer.json").read_text())
    (tmp_path / "bare" / "tokenizer.json").write_text(json.dumps(bare | {"added_tokens": []}))
    (tmp_path / "binaries").mkdir()
    (tmp_path / "binaries" / "a.so").write_bytes(b"\x7fELF\0")
    provide(generate("rename", "train", 9), tmp_path / "broken")
    (tmp_path / "broken" / "instruction.md").write_bytes(b"\xff\xfe rename it")
    (tmp_path / "sft.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_solutions_become_a_checkpoint_that_a_run_begins_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sft", "sft.toml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    pebbles = found["sources"]["pebbles"]
    assert pebbles["left_out"]["tasks of the fence"] == 1 and len(pebbles["held_out"]) >= 1
    assert not set(pebbles["train"]) & set(pebbles["held_out"])
    with_store = Store.open(folder / "runs/sft/store.db")
    for id in (*pebbles["train"], *pebbles["held_out"]):
        assert {each.kind: each.value for each in with_store.signals(id)}[SignalKind.HIDDEN_TESTS] == 1.0
    shown = {each.task_id for each in with_store.sessions(source=Source.TEACHER)}
    with_store.close()
    assert generate("rename", "train", 0).id not in shown
    assert json.loads((folder / "runs/sft/chosen.json").read_text()) == {
        "runs/sft/store.db": pebbles["train"]
    }
    assert found["after"]["pebbles"] < found["before"]["pebbles"]
    check_start(load(RunConfig, overrides=["model.path=runs/sft/checkpoints/taught"]))

    record = SETTINGS.replace('tasks = "pebbles"', 'record = "runs/sft"')
    (folder / "again.toml").write_text(record.replace('fence = ["fence"]\n', ""))
    assert main(["sft", "again.toml", "--set", "steps=2", "--set", "held_out=0"]) == 0
    told = capsys.readouterr().out
    sessions = len(pebbles["train"]) + len(pebbles["held_out"])
    assert f"pebbles: {sessions} sessions learnt from, 0 held out" in told
    assert "as model.path of a run: runs/again/checkpoints/taught" in told


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("sources.pebbles.least_reward=0.1", "give either tasks or record"),
        ('profiles=["nobody"]', "nobody"),
        ('profiles=["claude"]', "profiles lacks harness.profile"),
        ("held_out=1.0", "held_out in"),
        ("start=nowhere", "start is nowhere, which is no checkpoint"),
        ("start=bare", "start is bare, which cannot be used"),
        ("sources.pebbles.tasks=binaries", "binaries holds no task"),
        ("sources.pebbles.tasks=broken", "task broken: instruction.md is not UTF-8"),
        ('fence=["pebbles"]', "there is no demonstration to learn from (4 tasks of the fence)"),
    ],
)
def test_what_cannot_be_done_is_refused(
    folder: Path, override: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sft", "sft.toml", "--set", override]) == 2
    assert why in capsys.readouterr().err
    assert not (folder / "runs/sft/checkpoints/taught").exists()


def test_the_defaults_suit_a_pretrained_model() -> None:
    config = SftRunConfig(start=Path("start"), sources={})
    assert config.sft.induction == 0.0 and config.sft.learning_rate == 1e-4
    assert config.run.schedule.stages == ("teach",) and config.run.model.path == Path("start")
