"""A trainer as a process: settings, one thread, clean ends, one line for an error."""

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ostinato.config import settings_of
from ostinato.data.config import CorpusError
from ostinato.extend import PluginError
from ostinato.extras import MissingPackageError
from ostinato.model.replay import RoutesError
from ostinato.model.tensor_files import CheckpointError
from ostinato.store import ObjectsError, StoreError
from ostinato.sync import SyncError
from ostinato.train.base import StateError, StepError
from ostinato.train.config import TrainerConfig

T = TypeVar("T")
MENDABLE = (
    CheckpointError,
    CorpusError,
    MissingPackageError,
    ObjectsError,
    PluginError,
    RoutesError,
    StateError,
    StepError,
    StoreError,
    SyncError,
)
"""The errors that an operator can mend, each of which says how."""
Stop = Callable[[], bool]
"""Return True once the process was asked to end."""
log = logging.getLogger(__name__)


def run(
    schema: type[T],
    work: Callable[[T, Stop], None],
    arguments: Sequence[str] | None,
    module: str,
    description: str | None,
) -> int:
    """Do `work` with the settings of the command line; return the exit status.

    SIGTERM and SIGINT ask it to stop. An error that an operator can mend is one line and status 1.
    """
    settings = settings_of(schema, arguments, f"python -m {module}", description)
    trainer = getattr(settings, "trainer", None)
    ranks = trainer.ranks if isinstance(trainer, TrainerConfig) else 1
    if ranks > 1:
        from ostinato.train.fsdp.ranks import end_with, torchrun, under_torchrun

        if not under_torchrun():
            return torchrun(module, sys.argv[1:] if arguments is None else arguments, ranks)
        end_with(lambda: _worked(settings, work, module))
    return _worked(settings, work, module)


def _worked(settings: T, work: Callable[[T, Stop], None], module: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    # A list, since a handler can be interrupted by a second signal: `Event.set` would wait for its own lock.
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    try:
        work(settings, lambda: bool(asked))
    except MENDABLE as error:
        log.error("%s stopped: %s", module, error)
        return 1
    return 0
