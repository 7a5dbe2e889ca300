"""The trainers' protocols: the learner's interface to weights, and the trainer's interface to a model.

::

    learner: groups, versions, ledger ─► Trainer: chain of versions, states ─► Trainable: tensors, gradients

The learner knows groups, versions and the ledger. A trainer knows how versions are published and resumed. A
`Trainable` knows tensors, and how many processes they are spread over: `local.DecoderModel` is our own
decoder in one process, `fsdp.model.ShardedModel` any causal language model of transformers over any number.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ostinato.model.replay import ReplayCounts, RouterShape
from ostinato.sync import Manifest
from ostinato.sync.shards import Shard
from ostinato.train.batch import Row, ScoredRow
from ostinato.types import Checkpoint, Group

Note = dict[str, Any]
"""The JSON object that the learner keeps beside a state: batch, prompts and the journal's line."""
PieceLoss = Callable[[Sequence[int], Tensor], Tensor]
"""Return the loss of some rows, by their numbers, from the log-probabilities [N] of their counted tokens,
row by row."""


class StateError(Exception):
    """A saved state does not fit the model, or cannot be saved; the message names the file."""


class Trainable(Protocol):
    """Weights with their gradients, optimizer and saved states."""

    def accumulate(self, rows: Sequence[ScoredRow], loss: PieceLoss) -> float:
        """Add the gradient of the loss of all rows, piece by piece; return the sum of the pieces' losses."""

    def update(self, rate: float, largest_gradient: float) -> float:
        """Take one optimizer step at `rate`, the gradient cut to a norm of at most `largest_gradient`.

        Return the norm before; the gradient is zero afterwards.
        """

    def logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        """Return the log-probabilities of each row's counted tokens, without gradient."""

    @property
    def router(self) -> RouterShape | None:
        """The choices of experts that can be replayed; None when there are none, or in a way not known."""

    def replayed(self) -> ReplayCounts:
        """Return what became of the routes in `accumulate` since the last call, in all processes."""

    def gathered(self, values: Tensor) -> Tensor:
        """Return the values, of any number, that all processes give."""

    @property
    def steps(self) -> int:
        """The number of steps that the optimizer's moments have seen."""

    def served(self) -> Mapping[str, Tensor | Shard]:
        """Return the weights of this process under the names, and of the type, that engines load."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over published weights, with an optimizer that begins anew. Raises StateError for a misfit."""

    def save(self, number: int, note: Note) -> None:
        """Keep weights, moments and `note` on disk for good, under `number`. Raises StateError."""

    def restore(self, number: int) -> Note | None:
        """Load a saved state and return its note; None when there is none. Raises StateError for a misfit."""

    def inherit(self, run_dir: Path) -> int | None:
        """Begin with the second moments of an earlier run's newest state; return its number, if any."""

    def saved(self, before: int | None = None) -> list[int]:
        """Return the numbers of the saved states in order, with `before` the smaller ones only."""

    def write(self, directory: Path) -> None:
        """Write the weights as a checkpoint in Hugging Face layout, without the files beside them."""


class Trainer(Protocol):
    """Weights with their optimizer, at one published version or one step after it."""

    def resume(self) -> Manifest | None:
        """Take over from the trainer that published last; return the newest version's manifest, if any.

        From now on no publication but this trainer's succeeds: those of an earlier trainer raise Fenced.
        """

    def restore(self, version: Manifest) -> Note | None:
        """Load the saved state of `version`, and return the note beside it.

        Return None unless the state is that of exactly the weights that were published; everything that was
        changed by then is set anew by `begin`. Raises StateError when the state does not fit the model.
        """

    def begin(self, version: Manifest) -> None:
        """Take the published weights of `version`, with moments that begin anew or from an earlier run."""

    def step(self, groups: Sequence[Group]) -> dict[str, Any]:
        """Take one optimizer step on all samples of `groups`; return its figures for the journal."""

    def imitate(self, rows: Sequence[Row], rate: float) -> float:
        """Take one optimizer step on the weighted next-token loss; return it in nats per unit of weight."""

    def save(self, version: int, note: Note) -> None:
        """Keep weights, moments and `note` on disk for good, as the state of `version`."""

    def saved(self, before: int | None = None) -> list[int]:
        """Return the versions whose states are kept, with `before` the smaller ones only."""

    def go_on(self) -> Note | None:
        """Load the newest saved state, and return its note; None when there is none."""

    def publish(self, version: int) -> Manifest:
        """Publish the weights as `version`: the first whole, later ones as a delta. Raises Fenced."""

    def manifest(self, version: int) -> Manifest:
        """Return the manifest of a published version."""

    def write(self, directory: Path) -> None:
        """Write the weights as a checkpoint, without the files beside them."""


def record_of(manifest: Manifest, batch: Sequence[str]) -> Checkpoint:
    """Return the store's record of a published version; `batch` names the groups that went into it."""
    return Checkpoint(
        version=manifest.version,
        parent=manifest.parent,
        digest=manifest.digest,
        kind=manifest.kind,
        bytes=sum(part.bytes for part in manifest.parts),
        created_at=time.time(),
        batch=tuple(batch),
    )
