"""The figures in real trackers, read back from what they keep on disk.

Covers train/figures/tracker.py, train/figures/base.py and train/figures/outlets.py.
"""

import json
import sqlite3
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.types.test_step import FIGURES

from ostinato.train.base import MissingPackageError
from ostinato.train.figures.outlets import open_outlets
from ostinato.train.figures.tracker import PROJECT, Tracker


def test_trackio_continues_the_run_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "kept"))
    pytest.importorskip("trackio", reason="the extra trackio is not installed")
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "kept")
    run = tmp_path / "run-7"
    for versions in ((1, 2), (3, 4)):
        (tracker,) = open_outlets(["trackio"], run)
        for version in versions:
            tracker.add(replace(FIGURES, version=version, loss=float(version)))
        tracker.close()
    with sqlite3.connect(tmp_path / "kept" / f"{PROJECT}.db") as kept:
        rows = kept.execute("select run_name, step, metrics from metrics order by step").fetchall()
    kept.close()
    assert [(name, step, json.loads(each)["loss"]) for name, step, each in rows] == [
        ("run-7", version, float(version)) for version in (1, 2, 3, 4)
    ]


def records(kept: bytes) -> Iterator[bytes]:
    """Yield the records of a log in the form of LevelDB: 7 bytes before all, and 7 before each piece."""
    at, record, block = 7, b"", 32 * 1024
    while at + 7 <= len(kept):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = struct.unpack_from("<HB", kept, at + 4)
        record += kept[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield record
            record = b""


def test_weights_and_biases_keeps_the_figures_and_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = tmp_path / "run-7"
    run.mkdir()
    tracker = Tracker("wandb", run)
    for version in (1, 2):
        tracker.add(replace(FIGURES, version=version, loss=float(version)))
    tracker.close()
    wandb.teardown()  # what a process does at its end: waits for the library's own process
    (path,) = run.glob("wandb/offline-run-*/run-run-7.wandb")
    losses, kinds = [], set()
    for data in records(path.read_bytes()):
        record = Record.FromString(data)
        kinds.add(record.WhichOneof("record_type"))
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        losses += [float(items["loss"])] if "loss" in items else []
    assert losses == [1.0, 2.0]
    assert not kinds & {"output", "output_raw", "stats"}


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_without_the_package_it_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=f"pip install {name}"):
        open_outlets([name], tmp_path)  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())
