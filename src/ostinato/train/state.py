"""Weights and optimizer moments on disk, so that a killed trainer goes on exactly where it was.

One file a step, written whole: a reader finds all of a step or nothing. Tensors lie under `weight.`,
`mean.` and `square.` plus the parameter's name; the note (any JSON object) lies in the header.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ostinato.store.objects import flush
from ostinato.train.base import Note, StateError
from ostinato.train.optimizer import AdamW, scales, set_scales

KEPT = 2
"""The newest may be of a version that was never published; then the one before it is needed."""


class States:
    """Saved states of one training run, by number."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, number: int, model: nn.Module, optimizer: AdamW, note: Note) -> None:
        """Write a state to disk for good; states older than the `KEPT` newest are deleted."""
        header = {"note": json.dumps(note), "scales": json.dumps(scales(optimizer))}
        data = save(_tensors(model, optimizer), metadata=header)
        path, part = self._path(number), self._path(number).with_suffix(".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        flush(self._directory)
        for old in self.saved(before=number)[: -(KEPT - 1)]:
            self._path(old).unlink(missing_ok=True)

    def load(self, number: int, model: nn.Module, optimizer: AdamW) -> Note | None:
        """Restore a state and return its note; None when there is no such state. Raises StateError."""
        path = self._path(number)
        if not path.exists():
            return None
        with _fitting(path) as (tensors, header):
            _restore(tensors, model, optimizer)
            set_scales(optimizer, json.loads(header["scales"]))
            note: Note = json.loads(header["note"])
        return note

    def inherit(self, model: nn.Module, optimizer: AdamW) -> int | None:
        """Begin with the second moments of the newest state, and none of its first ones; return its number.

        Second moments say how large each weight's gradients are, which the next stage of training shares.
        First moments say where the last stage was heading. Beginning at zero they also make the first steps
        short: the rate needs no rise. None when there is no state, or no step was taken, since all groups
        were even. Raises StateError.
        """
        newest = self.newest()
        if newest is None:
            return None
        with _fitting(self._path(newest)) as (tensors, header):
            if not any(name.startswith("square.") for name in tensors):
                return None
            _inherit(tensors, model, optimizer)
            set_scales(optimizer, json.loads(header["scales"]))
        return newest

    def newest(self) -> int | None:
        return max(self.saved(), default=None)

    def saved(self, before: int | None = None) -> list[int]:
        """Return the numbers of the saved states in order; with `before` the smaller ones only.

        A state of a later version than the published one is left from a step that was undone.
        """
        numbers = sorted(int(path.stem) for path in self._directory.glob("*.safetensors"))
        return [number for number in numbers if before is None or number < before]

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:010d}.safetensors"


@contextmanager
def _fitting(path: Path) -> Iterator[tuple[dict[str, Tensor], dict[str, str]]]:
    """Open a state: its tensors and its header. A misfit becomes a StateError with the file."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = file.metadata()
        yield tensors, header
    except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
        raise StateError(f"{path} is not a state of this model: {error}; delete it to go without") from error


def _tensors(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    tensors = {"step": torch.zeros(())}
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach().contiguous()
        if moments := optimizer.state.get(parameter):
            tensors["step"] = moments["step"].clone()
            tensors[f"mean.{name}"] = moments["exp_avg"]
            tensors[f"square.{name}"] = moments["exp_avg_sq"]
    return tensors


@torch.no_grad()
def _restore(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: AdamW) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[f"weight.{name}"])
        if f"mean.{name}" in tensors:
            optimizer.state[parameter] = {
                "step": tensors["step"].clone(),
                "exp_avg": tensors[f"mean.{name}"],
                "exp_avg_sq": tensors[f"square.{name}"],
            }


def _inherit(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: AdamW) -> None:
    moments: dict[Tensor, dict[str, Tensor]] = {}
    for name, parameter in model.named_parameters():
        square = tensors[f"square.{name}"]
        if square.shape != parameter.shape:
            raise ValueError(f"{name} has shape {list(square.shape)}, not {list(parameter.shape)}")
        moments[parameter] = {
            "step": tensors["step"].clone(),
            "exp_avg": torch.zeros_like(square),
            "exp_avg_sq": square,
        }
    optimizer.state.update(moments)
