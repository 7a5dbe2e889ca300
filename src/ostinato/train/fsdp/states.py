"""States of a sharded model on disk: each rank writes what it holds, and a whole folder appears at once."""

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from ostinato.store.objects import flush
from ostinato.train.base import Note, StateError
from ostinato.train.fsdp.ranks import Ranks

KEPT = 2
"""The newest may be of a version that was never published; then the one before it is needed."""
NOTE = "note.json"
Tensors = dict[str, Tensor]


class ShardedStates:
    """Saved states of one training run, by number: `RUN/states/0000000007/`."""

    def __init__(self, directory: Path, ranks: Ranks) -> None:
        self._directory, self._ranks = directory, ranks
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, number: int, tensors: Tensors, note: Note) -> None:
        """Write a state for good; older ones than the `KEPT` newest are deleted.

        Raises StateError, before anything is written, when the disk has no room for it.
        """
        path, part = self._path(number), self._path(number).with_suffix(".part")
        room = shutil.disk_usage(self._directory).free
        size = sum(self._ranks.all(sum(_bytes(tensor) for tensor in tensors.values())))
        if size > room:
            raise StateError(
                f"{path}: a state takes {size / 1e9:.1f} GB, and the disk has {room / 1e9:.1f} GB left"
            )
        if self._ranks.leads:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
        self._ranks.barrier()
        try:
            with _alone():
                save(tensors, checkpoint_id=part, no_dist=self._ranks.size == 1)
        except OSError as error:
            raise StateError(f"{part}: the state could not be written: {error}") from error
        self._ranks.barrier()
        if self._ranks.leads:
            self._appear(path, part, note)
        self._ranks.barrier()

    def _appear(self, path: Path, part: Path, note: Note) -> None:
        with (part / NOTE).open("w") as file:
            json.dump(note, file)
            file.flush()
            os.fsync(file.fileno())
        flush(part)
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
        flush(self._directory)
        for old in self.saved(before=int(path.name))[: -(KEPT - 1)]:
            shutil.rmtree(self._path(old), ignore_errors=True)

    def note(self, number: int) -> Note | None:
        """Return the note of a state; None when there is none. Raises StateError."""
        path = self._path(number) / NOTE
        if not self._path(number).exists():
            return None
        try:
            note: Note = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise StateError(f"{path}: cannot be read: {error}; delete the folder to go without") from error
        return note

    def load(self, number: int, tensors: Tensors) -> None:
        """Fill `tensors` with those of a state. Raises StateError when it lacks one or its shape differs."""
        path = self._path(number)
        try:
            with _alone():
                load(tensors, checkpoint_id=path, no_dist=self._ranks.size == 1)
        except (OSError, ValueError, KeyError, RuntimeError, CheckpointException) as error:
            raise StateError(
                f"{path} is not a state of this model: {error}; delete it to go without"
            ) from error

    def saved(self, before: int | None = None) -> list[int]:
        """Return the numbers of the saved states in order; with `before` the smaller ones only."""
        numbers = sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdecimal())
        return [number for number in numbers if before is None or number < before]

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:010d}"


@contextmanager
def _alone() -> Iterator[None]:
    """Let the library save in one process without a warning about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


@torch.no_grad()
def _bytes(tensor: Tensor) -> int:
    """Return the bytes that this process holds of a tensor."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())
