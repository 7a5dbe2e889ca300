"""The figures of steps as TensorBoard event files."""

from pathlib import Path
from typing import Any

from ostinato.train.base import MissingPackageError
from ostinato.types import StepFigures


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
                "tensorboard is not installed: pip install 'ostinato[tensorboard]', or leave 'tensorboard' "
                "out of the setting figures_to"
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
