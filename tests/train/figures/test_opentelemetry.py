"""The figures at a collector, which here is a server that reads OpenTelemetry's own messages."""

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.types.test_step import FIGURES

from ostinato.train.base import MissingPackageError
from ostinato.train.figures.opentelemetry import Gauges


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
    monkeypatch.setattr("ostinato.train.figures.opentelemetry.FLUSH_MS", 200)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    gauges = Gauges("run-7")
    gauges.add(FIGURES)
    gauges.close()
    assert "export" in caplog.text.lower()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'ostinato\[opentelemetry\]'"):
        Gauges("run-7")
