"""The trainers' protocols: the learner's interface to weights, and the trainer's interface to a model.

::

    learner: groups, versions, ledger ─► Trainer: chain of versions, states ─► Trainable: tensors, gradients

The learner knows groups, versions and the ledger. A trainer knows how versions are published and resumed. A
`Trainable` knows tensors, and how many processes they are spread over: `local.DecoderModel` is our own
decoder in one process, `fsdp.model.ShardedModel` any causal language model of transformers over any number.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ostinato.model.replay import ReplayCounts, RouterShape
from ostinato.sync import Manifest
from ostinato.sync.shards import Shard
from ostinato.train.batch import Row, ScoredRow, Scores
from ostinato.types import Checkpoint, GapFigures, Group, Percentiles

Note = dict[str, Any]
"""The JSON object that the learner keeps beside a state: batch, prompts and the journal's line."""
PieceLoss = Callable[[Sequence[int], Scores], Tensor]
"""Return the loss of some rows, by their numbers, from the scores of their counted tokens, row by row."""


NOT_FINITE = (
    "the gradient is not finite, so the weights are left as they are: look at the rewards of the groups of "
    "this step and at the learning rate, and start again from the last version that was sound"
)
NO_GRADIENT = "gradient not finite"
BEYOND_CONTEXT = "row beyond the model's context"
OTHER_ROUTES = "routes of another model"
"""The reasons for which a step drops a group."""
EQUAL = "no session of its batch had an advantage"
"""The reason for which live groups end without a version."""


class StateError(Exception):
    """A saved state does not fit the model, or cannot be saved; the message names the file."""


class StepError(Exception):
    """A step cannot be taken with this batch; nothing was changed. The message says why and what to do."""


class NotFiniteError(StepError):
    """The gradient of a step is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The figures of one step that the trainer knows; see `types.StepFigures` for their meaning.

    `dropped` maps the id of each group that the step left out to its reason.

    >>> StepStats().ratio
    1.0
    """

    loss: float = 0.0
    gradient: float = 0.0
    rows: int = 0
    tokens: int = 0
    ratio: float = 1.0
    cut: float = 0.0
    mismatch: Percentiles | None = None
    effective: float | None = None
    gaps: tuple[GapFigures, ...] = ()
    entropy: float | None = None
    k1: float | None = None
    routes_recorded: float = 0.0
    routes_differing: float = 0.0
    routes_replaced: float = 0.0
    dropped: Mapping[str, str] = field(default_factory=dict)


class Trainable(Protocol):
    """Weights with their gradients, optimizer and saved states."""

    def accumulate(self, rows: Sequence[ScoredRow], loss: PieceLoss) -> float:
        """Add the gradient of the loss of all rows, piece by piece; return the sum of the pieces' losses."""

    def update(self, rate: float, largest_gradient: float) -> float:
        """Take one optimizer step at `rate`, the gradient cut to a norm of at most `largest_gradient`.

        Return the norm before; the gradient is zero afterwards. Raises NotFiniteError for a gradient that is
        not finite, on every process, and changes nothing then.
        """

    def discard(self) -> bool:
        """Forget the gradient, and what became of routes; return whether it was finite in all processes."""

    def logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        """Return the log-probabilities of each row's counted tokens, without gradient."""

    def refer(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep published weights as the reference, unchanged. Raises StateError for a misfit."""

    def reference_logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        """Return the log-probabilities of each row's counted tokens under the weights of `refer`."""

    @property
    def router(self) -> RouterShape | None:
        """The choices of experts that can be replayed; None when there are none, or in a way not known."""

    def replayed(self) -> ReplayCounts:
        """Return what became of the routes in `accumulate` since the last call, in all processes."""

    def gathered(self, values: Tensor) -> Tensor:
        """Return the values, of any number, that all processes give."""

    @property
    def context(self) -> int:
        """The most tokens of a row, the positions that the model was made for."""

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

    def refer(self, version: int) -> None:
        """Let k1 compare with the published weights of `version`. Raises StateError and SyncError."""

    def step(self, groups: Sequence[Group], version: int) -> StepStats:
        """Take one optimizer step on all samples of `groups`, from the weights of `version`.

        A group with a row that cannot be trained on is left out, and `dropped` of the figures names it with
        the reason. When that is every group, the weights stay as they are.
        """

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
