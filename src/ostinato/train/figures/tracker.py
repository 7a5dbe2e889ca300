"""The figures of steps for an experiment tracker: trackio, or Weights & Biases, which speak one language.

Both read where to send them, and with which key, from their own settings (`WANDB_API_KEY`, `WANDB_MODE`,
`TRACKIO_DIR`, …).
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ostinato.train.base import MissingPackageError
from ostinato.types import StepFigures

PROJECT = "ostinato"
Name = Literal["trackio", "wandb"]
ONLY_FIGURES = {"console": "off", "disable_git": True, "disable_code": True, "x_disable_stats": True}
"""Weights & Biases would send what the process prints and the state of its repository too."""


class Tracker:
    """One run of a tracker, named as the run folder; a run that goes on is continued there.

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
