"""The trainer of a chain of versions: resume, step, save, publish, over any `Trainable`."""

import logging
from collections.abc import Sequence
from pathlib import Path

from ostinato.store import Objects
from ostinato.sync import Manifest, Publisher, RankGroup, Subscriber
from ostinato.train.base import Note, StepStats, Trainable
from ostinato.train.batch import Row
from ostinato.train.config import LearnerConfig
from ostinato.train.policy import policy_step, supervised_step
from ostinato.types import Group

log = logging.getLogger(__name__)
RISE_STEPS = 8
"""The rate rises over so many steps: with moments of one batch Adam moves every weight by its full rate."""


class ChainTrainer:
    """A `Trainer`. `model` holds the weights of this process; `group` names the processes that publish with
    it. `before` is the folder of an earlier run, whose second moments it begins with. `made_with` names the
    plug-ins behind the weights, for their manifests.
    """

    def __init__(
        self,
        model: Trainable,
        objects: Objects,
        config: LearnerConfig,
        *,
        group: RankGroup | None = None,
        before: Path | None = None,
        made_with: tuple[str, ...] = (),
    ) -> None:
        self.model = model
        self._config = config
        self._publisher = Publisher(objects, group=group, made_with=made_with)
        self._subscriber = Subscriber(objects)
        self._before = before

    def resume(self) -> Manifest | None:
        head = self._publisher.resume()
        return None if head is None else self.manifest(head)

    def restore(self, version: Manifest) -> Note | None:
        note = self.model.restore(version.version)
        if note is not None and note.get("state_root") != version.state_root:
            log.warning("the saved state is not that of the published version %d: not used", version.version)
            return None
        return note

    def begin(self, version: Manifest) -> None:
        self.model.load(self._subscriber.fetch(version.version))
        if self._before is not None:
            log.info("second moments of the run before: state %s", self.model.inherit(self._before))

    def refer(self, version: int) -> None:
        self.model.refer(self._subscriber.fetch(version))

    def step(self, groups: Sequence[Group], version: int) -> StepStats:
        rate = self._config.learning_rate * min(1.0, (self.model.steps + 1) / RISE_STEPS)
        return policy_step(self.model, groups, rate, self._config.policy, version=version)

    def imitate(self, rows: Sequence[Row], rate: float) -> float:
        return supervised_step(self.model, rows, rate)

    def save(self, version: int, note: Note) -> None:
        self.model.save(version, note)

    def saved(self, before: int | None = None) -> list[int]:
        return self.model.saved(before)

    def go_on(self) -> Note | None:
        newest = max(self.model.saved(), default=None)
        return None if newest is None else self.model.restore(newest)

    def publish(self, version: int) -> Manifest:
        first = self._publisher.version is None
        return (self._publisher.anchor if first else self._publisher.delta)(version, self.model.served())

    def manifest(self, version: int) -> Manifest:
        return self._subscriber.manifest(version)

    def write(self, directory: Path) -> None:
        self.model.write(directory)
