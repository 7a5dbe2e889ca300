"""The trainer of one process and one thread: the whole model in memory, AdamW, states as files."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ostinato.model.decoder import Decoder
from ostinato.store import Objects
from ostinato.sync import Manifest, Publisher, Subscriber
from ostinato.sync.weights import state_root, to_blobs
from ostinato.train.base import Note
from ostinato.train.config import LearnerConfig
from ostinato.train.optimizer import adamw, set_rate, steps_taken
from ostinato.train.policy import policy_step
from ostinato.train.state import States
from ostinato.types import Group

log = logging.getLogger(__name__)
RISE_STEPS = 8
"""The rate rises over so many steps: with moments of one batch Adam moves every weight by its full rate."""


class LocalTrainer:
    """A `Trainer`. `decoder` only gives the shape and, before the first version, the weights.

    `run_dir` keeps the states. `before` is the folder of an earlier run, whose second moments it begins with.
    """

    def __init__(
        self,
        decoder: Decoder,
        objects: Objects,
        run_dir: Path,
        config: LearnerConfig,
        *,
        before: Path | None = None,
    ) -> None:
        self.decoder = decoder
        self.optimizer = adamw(decoder, rate=config.learning_rate)
        self._config = config
        self._publisher = Publisher(objects)
        self._subscriber = Subscriber(objects)
        self._states = States(run_dir / "states")
        self._earlier = None if before is None else States(before / "states")

    def resume(self) -> Manifest | None:
        head = self._publisher.resume()
        return None if head is None else self.manifest(head)

    def restore(self, version: Manifest) -> Note | None:
        note = self._states.load(version.version, self.decoder, self.optimizer)
        if note is not None and self._state_root() != version.state_root:
            log.warning("the saved state is not that of the published version %d: not used", version.version)
            return None
        return note

    def begin(self, version: Manifest) -> None:
        self.decoder.load_state_dict(self._subscriber.fetch(version.version))
        self.optimizer.state.clear()
        if self._earlier is not None:
            state = self._earlier.inherit(self.decoder, self.optimizer)
            log.info("second moments of the run before: state %s", state)

    def step(self, groups: Sequence[Group]) -> dict[str, Any]:
        samples = [sample for group in groups for sample in group.samples]
        sessions = sum(len(group.rewards) for group in groups)
        rise = min(1.0, (steps_taken(self.optimizer) + 1) / RISE_STEPS)
        set_rate(self.optimizer, self._config.learning_rate * rise)
        return asdict(policy_step(self.decoder, self.optimizer, samples, sessions, self._config.policy))

    def save(self, version: int, note: Note) -> None:
        self._states.save(version, self.decoder, self.optimizer, note)

    def saved(self, before: int) -> list[int]:
        return self._states.saved(before=before)

    def publish(self, version: int) -> Manifest:
        first = self._publisher.version is None
        return (self._publisher.anchor if first else self._publisher.delta)(
            version, self.decoder.state_dict()
        )

    def manifest(self, version: int) -> Manifest:
        return self._subscriber.manifest(version)

    def _state_root(self) -> str:
        return state_root(to_blobs(self.decoder.state_dict(), copy=False))
