"""`ostinato select` on tiny checkpoints: figures of each instrument, and what is refused before it begins."""

import argparse
import json
import tarfile
from pathlib import Path

import pytest
import torch
from tests.engine.remote.fake_vllm import fake_vllm

from ostinato.cli import main
from ostinato.loop.suites.select import NamedModel, choose, codebase, register
from ostinato.model.checkpoint import save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer

MODULE = '"""A part."""\n' + "".join(f"def f{i}(value):\n    return value + {i}\n" for i in range(8))
LIBRARY = '''
def second(items):
    """Give an item.

    >>> second([4, 5])
    5
    """
    return items[1]
'''


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints, a codebase and the archive of a library, in the present folder."""
    tokenizer = Tokenizer.train([MODULE * 5], 320)
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        config = ModelConfig(
            vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, kv_heads=2, head_dim=8,
            intermediate_size=16, max_positions=2048,
        )  # fmt: skip
        save(tmp_path / name, Decoder(config), tokenizer, version=0)
    (tmp_path / "code").mkdir()
    for number in range(5):
        (tmp_path / "code" / f"part{number}.py").write_text(MODULE.replace("value", f"value{number}"))
    (tmp_path / "code" / "picture.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "code" / "notes.txt").write_text("no code")
    (tmp_path / "binaries").mkdir()
    for name, data in (("a.so", b"\x7fELF"), ("b.py", b"\xff\xfe\x00"), ("c.py", b"x" * 50_000_000)):
        (tmp_path / "binaries" / name).write_bytes(data)
    (tmp_path / "mylib.py").write_text(LIBRARY)
    with tarfile.open(tmp_path / "mylib-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "mylib.py", "mylib-1.0/mylib.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SMALL = ["--files", "5", "--lines", "4", "--changes", "1", "--window", "64", "--sandbox", "process"]


def test_every_instrument_has_its_figures_hash_and_cost(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--code", "code", "--library", "mylib-1.0.tar.gz@2024-05-01", "--cutoff", "one=2024-06-01"]
    assert main(["select", "one", "two", *words, *SMALL, "--json"]) == 0
    tables = {each["instrument"]: each for each in json.loads(capsys.readouterr().out)}
    assert list(tables) == ["knowledge", "state", "loss"]
    for each in tables.values():
        assert set(each["order"]) == {"one", "two"} and len(each["hash"]) == 32 and len(each["pairs"]) == 1
        assert all(cost["read"] > 0 for cost in each["costs"].values()) and not each["not_possible"]
    assert tables["knowledge"]["parts"].keys() == {"one"}
    assert tables["knowledge"]["parts"]["one"].keys() == {"older"}
    loss = tables["loss"]
    assert loss["facts"] == {
        "files": 5, "bytes": sum(len(path.read_bytes()) for path in models.glob("code/part*.py")),
        "no code": 1, "no UTF-8": 1, "empty": 0, "beyond --code-bytes": 0,
    }  # fmt: skip
    assert all(0 < each["low"] <= each["value"] <= each["high"] for each in loss["figures"].values())
    assert main(["select", "one", "--code", "code", *SMALL]) == 0
    assert f"loss: bits a byte (hash {loss['hash']}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("one", "give --code PATH"),
        ("one one --code code", "named twice"),
        ("one@host --code code", "no CHECKPOINT@http"),
        ("one@http://gpu-1:8000 --code code", "allow it by --send-code"),
        ("one --code code --cutoff three=2024-06-01", "three is none of the models"),
        ("one --code code --cutoff one=soon", "'soon' is no date"),
        ("one --code code --lines 2", "--lines 3"),
        ("one --code nowhere", "nowhere does not exist"),
        ("one --code mylib.py", "unreadable archive"),
        ("one --code binaries", "no file of it can be used (1 no code, 1 no UTF-8, 1 larger than 8 MiB)"),
        ("one --library code", "write code@2026-03-01"),
        ("three --code code", "neither a directory"),
        ("code --code code --lines 4", "can be served by vLLM"),
        ("one@http://127.0.0.1:9 --code code --lines 4", "does not respond"),
    ],
)
def test_what_cannot_be_done_is_refused(
    models: Path, words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["select", *words.split()]) == 2
    assert why in capsys.readouterr().err


def test_code_is_read_in_the_order_of_its_paths_up_to_a_size(models: Path) -> None:
    size = len((models / "code" / "part0.py").read_bytes())
    files, facts = codebase(models / "code", 2 * size)
    assert list(files) == ["part0.py", "part1.py"] and facts["beyond --code-bytes"] == 3


async def test_the_other_instruments_go_on_where_a_server_tells_no_log_probabilities(
    models: Path,
) -> None:
    tokenizer = Tokenizer.load(models / "one")
    said = tokenizer.encode("return 1\n```\n")
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    async with fake_vllm(tokenizer, said, prompt_logprobs="none", context=2048) as (url, _):
        options = parser.parse_args(["select", f"one@{url}", "two", "--code", "code", *SMALL])
        state, loss = await choose([NamedModel.read(name) for name in options.models], options, {})
    assert set(state.figures) == {f"one@{url}", "two"} and set(loss.figures) == {"two"}
    assert "tells no log-probabilities of a prompt" in loss.not_possible[f"one@{url}"]


def test_the_other_models_go_on_where_one_cannot_be_opened(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["select", "code", "one", "--code", "code", *SMALL, "--json"]) == 0
    for each in json.loads(capsys.readouterr().out):
        assert each["order"] == ["one"] and "can be served by vLLM" in each["not_possible"]["code"]
