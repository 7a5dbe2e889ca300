"""The figures of steps as OpenTelemetry metrics, over OTLP.

Each figure is a gauge `ostinato.training.PATH`, such as `ostinato.training.mismatch.p99`, whose resource
names the run. Endpoint, headers and time-outs come from the variables that OpenTelemetry reads
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, …), so no key stands in a file.
"""

import math
import re
from typing import Any

from ostinato.train.base import MissingPackageError
from ostinato.types import StepFigures

UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
FLUSH_MS = 5_000
"""The longest time that a step waits for a collector."""


class Gauges:
    """The gauges of one run; each step is one export. The library logs an export that fails.

    Raises MissingPackageError where the exporter is not installed.
    """

    def __init__(self, run: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise MissingPackageError(
                "OpenTelemetry's exporter is not installed: pip install 'ostinato[opentelemetry]', or leave "
                "'opentelemetry' out of the setting figures_to"
            ) from error
        # Without a period of its own the reader exports when it is told to, which is once a step.
        exporter = OTLPMetricExporter(timeout=FLUSH_MS / 1000)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
        resource = Resource.create({"service.name": "ostinato-learner", "ostinato.run": run})
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("ostinato")
        self._gauges: dict[str, Any] = {}

    def add(self, figures: StepFigures) -> None:
        for path, value in figures.flat().items():
            name = f"ostinato.training.{UNFIT.sub('_', path.replace('/', '.'))}"
            gauge = self._gauges.get(name)
            if gauge is None:
                gauge = self._gauges[name] = self._meter.create_gauge(name)
            gauge.set(value)
        self._provider.force_flush(FLUSH_MS)

    def close(self) -> None:
        self._provider.shutdown(FLUSH_MS)
