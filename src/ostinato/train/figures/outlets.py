"""The outlets that a run's settings name."""

from collections.abc import Sequence
from pathlib import Path

from ostinato.train.config import OutletName
from ostinato.train.figures.base import Outlet
from ostinato.train.figures.opentelemetry import Gauges
from ostinato.train.figures.tensorboard import EventFiles
from ostinato.train.figures.tracker import Tracker


def open_outlets(names: Sequence[OutletName], run_dir: Path) -> tuple[Outlet, ...]:
    """Open the outlets of these names for a run. Raises MissingPackageError for one that is not installed."""
    return tuple(_open(name, run_dir) for name in names)


def _open(name: OutletName, run_dir: Path) -> Outlet:
    match name:
        case "tensorboard":
            return EventFiles(run_dir / "tensorboard")
        case "opentelemetry":
            return Gauges(run_dir.name)
        case "trackio" | "wandb":
            return Tracker(name, run_dir)
