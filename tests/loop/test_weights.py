"""`ostinato weights` from the outside."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.cli import main
from ostinato.model.tensor_files import TensorFiles, write_tensors
from ostinato.store import Objects
from ostinato.sync import Cadence, Publisher, Subscriber


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    """Six versions, every second with an anchor beside: the first three may be collected."""
    publisher = Publisher(Objects.open(tmp_path / "objects"), cadence=Cadence(anchor_every=2))
    publisher.anchor(0, tensors(0))
    for version in range(1, 6):
        publisher.delta(version, tensors(version))
    return tmp_path / "objects"


def tensors(version: int) -> dict[str, torch.Tensor]:
    values = torch.linspace(-1, 1, 4096)
    values[: 10 * version] += 0.01
    return {"w": values}


def said(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> Any:
    assert main(["weights", *map(str, words), "--json"]) == status
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()] if not status else err


def test_versions_are_listed_and_collected(capsys: pytest.CaptureFixture[str], objects: Path) -> None:
    rows = said(capsys, "list", objects)
    assert [row["version"] for row in rows] == list(range(6)) and all(row["kept"] for row in rows)
    assert [row["kind"] for row in rows] == ["anchor"] + ["delta"] * 5
    assert rows[2]["beside"] == ["anchor"] and rows[3]["beside"] == []
    (removed,) = said(capsys, "collect", objects)
    assert removed["removed"]["objects"] > 0 and removed["removed"]["bytes"] > 0
    assert [row["kept"] for row in said(capsys, "list", objects)] == [False] * 2 + [True] * 4
    assert torch.equal(Subscriber(Objects.open(objects)).fetch(5)["w"], tensors(5)["w"])
    assert main(["weights", "list", str(objects)]) == 0
    assert "version 2  kind delta" in capsys.readouterr().out


def test_a_damaged_version_is_listed_as_such(capsys: pytest.CaptureFixture[str], objects: Path) -> None:
    (manifest,) = objects.glob("weights/versions/*3.json")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    row = said(capsys, "list", objects)[3]
    assert row["version"] == 3 and manifest.name in row["damaged"]


def test_a_region_gets_the_newest_version(
    capsys: pytest.CaptureFixture[str], objects: Path, tmp_path: Path
) -> None:
    assert said(capsys, "mirror", objects, tmp_path / "region", "--once") == [{"version": 5}]
    assert torch.equal(Subscriber(Objects.open(tmp_path / "region")).fetch(5)["w"], tensors(5)["w"])


def test_a_mirror_follows_until_it_is_stopped(objects: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ostinato", "weights", "mirror", str(objects), str(tmp_path / "region")]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as mirror:
        assert mirror.stdout is not None
        assert json.loads(mirror.stdout.readline()) == {"version": 5}
        publisher = Publisher(Objects.open(objects))
        publisher.resume()
        publisher.delta(6, tensors(6))
        assert json.loads(mirror.stdout.readline()) == {"version": 6}
        mirror.terminate()
        mirror.communicate()
    assert mirror.returncode == 130


def test_what_is_no_store_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "nowhere is no folder" in said(capsys, "list", tmp_path / "nowhere", status=2)
    assert not (tmp_path / "nowhere").exists()
    assert "holds no version: check --prefix" in said(capsys, "list", tmp_path, status=1)
    assert "weights" in said(capsys, "mirror", tmp_path, "nosuch://bucket", "--once", status=1)


def test_a_model_is_imported_or_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_tensors(source, [("w", torch.ones(3, 4))])
    assert "config.json is missing" in said(capsys, "import", source, target, status=1)
    (source / "config.json").write_text("{}")
    (source / "tokenizer.json").write_text("{}")
    (row,) = said(capsys, "import", source, target, "--dtype", "bfloat16")
    assert row == {"target": str(target), "bytes": 24}
    assert TensorFiles.open(target).tensor("w").dtype == torch.bfloat16
    assert "exists already" in said(capsys, "import", source, target, status=1)
