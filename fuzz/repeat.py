"""Synchronous practice on a random schedule of kills and power failures, beside the same run left alone.

Both must end in the same state root: the same weights to the bit, the same account of every prompt, the same
rewards. The trainer is the real one, except that its step is a sum whose value depends on the order of groups
and of their samples.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fuzz.ledger import BATCH, PRACTICE_CONFIG, DiedError, PowerCutError, TallyTrainer, World
from ostinato.rollout.config import SYNCHRONOUS
from ostinato.store import Phase, Store
from ostinato.store.ledger.account import state_root
from ostinato.store.ledger.slots import Slots
from ostinato.sync import Fenced, Subscriber
from ostinato.train.base import StepStats
from ostinato.train.config import LearnerConfig
from ostinato.types import Group

VERSIONS = 4
CONFIG = replace(PRACTICE_CONFIG, mode=SYNCHRONOUS)


class Repeated(World):
    """A synchronous run, and with `faults` the deaths that it must not show."""

    failing = 0.0
    """None, since a failure of ours may strike one run and not the other."""

    def __init__(self, seed: int, folder: Path, template: Path, *, faults: bool) -> None:
        super().__init__(seed, folder, template)
        self._faults = faults

    def run(self) -> None:
        while Slots(self.store).newest_version() < VERSIONS:
            try:
                self._turn()
            except DiedError:
                self.kinds["kills"] += 1
                self.learner = None
            except PowerCutError:
                self._statements = 0  # whoever would have died there is gone
                self._cut()
            except Fenced:
                self.learner = None
            self._statements = 0

    def _turn(self) -> None:
        """Sample one batch and train one version on it."""
        if self.learner is None:
            self._start_learner()
        assert self.learner is not None
        if self.learner.version >= VERSIONS:
            return
        self._sample(CONFIG, lambda _: Slots(self.store).phases()[Phase.OFFERED] == BATCH, until=VERSIONS)
        self.learner.advance(BATCH)

    def _start_learner(self) -> None:
        self.learner = self._learner(self.objects, LearnerConfig(groups=BATCH, staleness=0))
        self.learner.start(0)

    def _learner(self, *about: Any, **named: Any) -> Any:
        learner = super()._learner(*about, **named)
        trainer = learner._trainer
        trainer.step = lambda groups, version: ordered_step(trainer, groups)
        return learner

    def _interventions(self) -> list[Any]:
        return [lambda: None]

    def _version(self) -> int:
        return max(0, Slots(self.store).newest_version())

    def root(self) -> str:
        """Return the state root of the run, which is over."""
        self.store.close()
        store = Store.open(self.path)
        reader = Subscriber(self.objects)
        root = state_root(store, reader.manifest(reader.head() or 0).state_root)
        store.close()
        return root


def ordered_step(trainer: TallyTrainer, groups: Sequence[Group]) -> StepStats:
    """Change every weight by a float32 sum that is another one in any other order."""
    weights = trainer.model.decoder.embedding
    with torch.no_grad():
        for group in groups:
            for sample in group.samples:
                weights.mul_(1.0001).add_(sample.advantage / (3.0 + sample.ids[-1]))
            weights.add_(sum(group.rewards) / 7.0)
    return StepStats()


def run_repeat(seed: int, folder: Path) -> Counter[str]:
    """Run one schedule with faults and without; return the counts of what happened."""
    template = folder / "template.db"
    if not template.exists():
        Store.open(template).close()
    roots, kinds = [], Counter[str]()
    for faults in (False, True):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            world = Repeated(random.Random(seed).randrange(1 << 30), Path(own), template, faults=faults)
            world.run()
            roots.append(world.root())
            kinds += world.kinds
    return kinds + Counter(repeats=1, roots_differ=int(roots[0] != roots[1]))
