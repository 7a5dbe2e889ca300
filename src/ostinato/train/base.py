"""The trainer: the learner's interface to the weights and their optimizer.

The learner knows groups, versions and the ledger; a trainer knows tensors, and how many processes they are
spread over. `local.LocalTrainer` is the trainer of one process and one thread.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol

from ostinato.sync import Manifest
from ostinato.types import Checkpoint, Group

Note = dict[str, Any]
"""The JSON object that the learner keeps beside a state: batch, prompts and the journal's line."""


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

    def save(self, version: int, note: Note) -> None:
        """Keep weights, moments and `note` on disk for good, as the state of `version`."""

    def saved(self, before: int) -> list[int]:
        """Return the versions below `before` whose states are kept."""

    def publish(self, version: int) -> Manifest:
        """Publish the weights as `version`: the first whole, later ones as a delta. Raises Fenced."""

    def manifest(self, version: int) -> Manifest:
        """Return the manifest of a published version."""


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
