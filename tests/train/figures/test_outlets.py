"""The figures in real trackers, read back from what they keep on disk.

Covers train/figures/tracker.py, train/figures/base.py and train/figures/outlets.py.
"""

import json
import sqlite3
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.types.test_step import FIGURES

from ostinato.extras import MissingPackageError
from ostinato.train.figures.outlets import PROJECT, EventFiles, Gauges, Tracker, open_outlets


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
def test_without_a_tracker_it_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=f"pip install {name}"):
        open_outlets([name], tmp_path)  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_figure_is_a_scalar_by_version_and_a_version_made_again_counts_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed = EventFiles(tmp_path)
    for version in (1, 2, 3):
        killed.add(replace(FIGURES, version=version, loss=float(version)))
    killed.close()
    again = EventFiles(tmp_path)
    for version in (3, 4):
        again.add(replace(FIGURES, version=version, loss=10.0 * version))
    again.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]
    assert set(read.Tags()["scalars"]) == FIGURES.flat().keys()
    assert read.Scalars("mismatch/p99")[0].value == pytest.approx(FIGURES.flat()["mismatch/p99"])


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[tensorboard\]"):
        EventFiles(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra is not installed")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    messages: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = ExportMetricsServiceRequest()
            message.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
            messages.append((self.path, message))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield messages
        server.shutdown()
        thread.join()


def values(message: Any) -> dict[str, float]:
    (resource,) = message.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric.gauge.data_points[0].as_double for metric in scope.metrics}


def test_each_step_is_one_export_of_every_figure(received: list[Any]) -> None:
    gauges = Gauges("run-7")
    for version in (1, 2):
        gauges.add(replace(FIGURES, version=version, loss=version / 4))
    assert [path for path, _ in received] == ["/v1/metrics"] * 2
    first, second = (values(message) for _, message in received)
    gauges.close()
    assert (first["ostinato.training.loss"], second["ostinato.training.loss"]) == (0.25, 0.5)
    assert first["ostinato.training.version"] == 1
    assert first["ostinato.training.mismatch.p99"] == pytest.approx(FIGURES.flat()["mismatch/p99"])
    assert len(first) == len(FIGURES.flat())
    resource = received[0][1].resource_metrics[0].resource
    named = {each.key: each.value.string_value for each in resource.attributes}
    assert (named["service.name"], named["ostinato.run"]) == ("ostinato-learner", "run-7")


def test_a_collector_that_is_away_is_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra is not installed")
    monkeypatch.setattr("ostinato.train.figures.outlets.FLUSH_MS", 200)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    gauges = Gauges("run-7")
    gauges.add(FIGURES)
    gauges.close()
    assert "export" in caplog.text.lower()


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[opentelemetry\]"):
        Gauges("run-7")
