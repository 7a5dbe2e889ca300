"""The outlets: where the figures of steps go beside the record, as a run's settings name them.

Each reads where to send them, and with which key, from the variables of its own library (`WANDB_API_KEY`,
`TRACKIO_DIR`, `OTEL_EXPORTER_OTLP_ENDPOINT`, …), so no key stands in a file of ours.
"""

import math
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from ostinato import extras
from ostinato.extras import MissingPackageError
from ostinato.train.config import OUTLETS
from ostinato.types import StepFigures


class Outlet(Protocol):
    """Passes the figures of steps on. The record has them already, so a service that is away loses none."""

    def add(self, figures: StepFigures) -> None:
        """Pass on the figures of one step; the same version may come again after a kill."""
        ...

    def close(self) -> None:
        """Pass on what is still waiting, and let go."""
        ...


class EventFiles:
    """A folder of event files; each figure is a scalar under its path, such as `mismatch/p99`, by version.

    A run that goes on after a kill hides what was written of the versions that it makes again. Raises
    MissingPackageError where tensorboard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError(
                f"{extras.sentence('tensorboard', 'figures_to = tensorboard')}, or leave it out"
            ) from error
        self._open: Any = SummaryWriter
        self._directory = directory
        self._writer: Any = None

    def add(self, figures: StepFigures) -> None:
        """Write the figures of one step to disk."""
        if self._writer is None:
            self._writer = self._open(str(self._directory), purge_step=figures.version)
        for path, value in figures.flat().items():
            self._writer.add_scalar(path, value, figures.version)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


PROJECT = "ostinato"
Name = Literal["trackio", "wandb"]
ONLY_FIGURES = {"console": "off", "disable_git": True, "disable_code": True, "x_disable_stats": True}
"""Weights & Biases would send what the process prints and the state of its repository too."""


class Tracker:
    """One run of an experiment tracker, trackio or Weights & Biases, which speak one language.

    It is named as the run folder; a run that goes on is continued there.

    Raises MissingPackageError where the tracker is not installed.
    """

    def __init__(self, name: Name, run_dir: Path) -> None:
        try:
            library = import_module(name)
        except ImportError as error:
            raise MissingPackageError(
                f"{name} is not installed: pip install {name}, or leave '{name}' out of the setting "
                "figures_to"
            ) from error
        run = run_dir.name
        more: dict[str, Any]
        if name == "trackio":
            more = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
        else:
            more = {"id": run, "dir": str(run_dir), "settings": ONLY_FIGURES}
        self._run = library.init(project=PROJECT, name=run, resume="allow", **more)

    def add(self, figures: StepFigures) -> None:
        self._run.log(figures.flat(), step=figures.version)

    def close(self) -> None:
        self._run.finish()


UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
FLUSH_MS = 5_000
"""The longest time that a step waits for a collector."""


class Gauges:
    """The figures of steps as OpenTelemetry metrics, over OTLP: each step is one export.

    Each figure is a gauge `ostinato.training.PATH`, such as `ostinato.training.mismatch.p99`, whose resource
    names the run. The library logs an export that fails.

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
                f"{extras.sentence('opentelemetry', 'figures_to = opentelemetry')}, or leave it out"
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


OpenOutlet = Callable[[Path], Outlet]
"""A class or a function that opens an outlet for a run's folder."""


def outlet(name: str) -> Callable[[OpenOutlet], OpenOutlet]:
    """Return a decorator that adds an outlet, a class or a function that gets the trainer's folder."""

    def add(opener: OpenOutlet) -> OpenOutlet:
        OUTLETS.add(name, opener)
        return opener

    return add


def open_outlets(names: Sequence[str], run_dir: Path) -> tuple[Outlet, ...]:
    """Open the outlets of these names for a run. Raises MissingPackageError for one that is not installed."""
    return tuple(_open(name, run_dir) for name in names)


def _open(name: str, run_dir: Path) -> Outlet:
    match name:
        case "tensorboard":
            return EventFiles(run_dir / "tensorboard")
        case "opentelemetry":
            return Gauges(run_dir.name)
        case "trackio" | "wandb":
            return Tracker(name, run_dir)
    added: Outlet = OUTLETS[name](run_dir)
    return added
