"""The policy-gradient learner: it turns groups into versions, with any `Trainer`.

::

    claim ─► step ─► save state ─► publish ─► commit
                                      │
                    the one moment at which the version exists

Killed before it: the groups are released and the step is done again from the saved state of the version
before. Killed after it: the restart finds the version published, and the saved state of just these weights
names the groups that went into them, which are then committed, and those of the batch that could not be
trained on, which are dropped in the same transaction. A version that somebody else published, such
as an older one that was put back, is not what the saved state holds: nothing is committed with it and the
groups are released. Either way nothing is trained twice and nothing is lost.
"""

import logging
import math
import sys
import time
from collections.abc import Mapping, Sequence

from ostinato.store import Ledger, Store
from ostinato.store.steps import add_step
from ostinato.sync import Manifest
from ostinato.train.base import (
    BEYOND_CONTEXT,
    EQUAL,
    NO_GRADIENT,
    OTHER_ROUTES,
    Note,
    StepError,
    StepStats,
    Trainer,
    record_of,
)
from ostinato.train.config import LearnerConfig, LearnerProcess
from ostinato.train.figures.batch_figures import step_figures
from ostinato.train.figures.outlets import Outlet, open_outlets
from ostinato.train.journal import Journal
from ostinato.train.opened import opened
from ostinato.train.process import Stop, run
from ostinato.types import Group, State, StepFigures, from_json, to_json

log = logging.getLogger(__name__)
POLL_S, LONGEST_POLL_S = 0.02, 0.5
BAD_BATCHES = 3
"""After so many batches in a row without a group that can be trained on, the weights are at fault."""


class Learner:
    """Trains the newest published weights on with the groups of the ledger."""

    def __init__(
        self,
        trainer: Trainer,
        store: Store,
        journal: Journal,
        config: LearnerConfig,
        outlets: Sequence[Outlet] = (),
    ) -> None:
        self._trainer = trainer
        self._store = store
        self._ledger = Ledger(store)
        self._journal = journal
        self._config = config
        self._outlets = outlets
        self.version = -1
        """The newest version that is published and committed; -1 before `start`."""
        self._bad_batches = 0
        self._began_with = -1
        """The version that this run began with; k1 compares with it unless another one is named."""

    def start(self, first_version: int) -> None:
        """Restore order after any interruption; publish `first_version` if nothing was published yet.

        Raises LedgerError when the store is the record of another chain of weights, and SyncError when the
        version that k1 is to compare with was never published.
        """
        head = self._trainer.resume() or self._trainer.publish(first_version)
        self._ledger.bind(head.run)
        self._settle_earlier(head)
        note = self._trainer.restore(head)
        if note is None:
            self._trainer.begin(head)
            line = {"version": head.version}
            note = {"batch": [], "prompts": [], "line": line, "reference": head.version}
        self._settle(head, note)
        self._began_with = note.get("reference", head.version)  # states of before k1 name none
        self._refer()
        released = self._ledger.release()
        log.info("at version %d, %d claims released", head.version, released)

    def _refer(self) -> None:
        """Load the weights that k1 compares with, where it counts."""
        policy = self._config.policy
        if policy.k1:
            version = self._began_with if policy.k1_reference is None else policy.k1_reference
            log.info("k1 compares with version %d", version)
            self._trainer.refer(version)

    def _settle_earlier(self, head: Manifest) -> None:
        """Commit versions before `head` that a learner published and did not live to commit.

        The state of `head` does not tell, because somebody else has published since.
        """
        committed = {row.version for row in self._store.versions()}
        for version in self._trainer.saved(before=head.version):
            if version in committed:
                continue
            manifest = self._trainer.manifest(version)
            if (note := self._trainer.restore(manifest)) is not None:
                self._commit(manifest, note)

    def _commit(self, manifest: Manifest, note: Note) -> None:
        dropped = note.get("dropped", {})  # the first version has no batch, and older states no such list
        self._ledger.commit(record_of(manifest, note["batch"]), note["prompts"], dropped)

    def _settle(self, manifest: Manifest, note: Note) -> None:
        """Do everything that follows a publication; done again after a restart it changes nothing."""
        self._commit(manifest, note)
        if manifest.version not in {line["version"] for line in self._journal.lines()[-1:]}:
            if note["batch"]:
                self._tell(from_json(StepFigures, note["line"]))
            self._journal.add(note["line"] | {"weights": manifest.state_root})
        self.version = manifest.version

    def _tell(self, figures: StepFigures) -> None:
        add_step(self._store, figures)
        for outlet in self._outlets:
            outlet.add(figures)

    def run(self, until: int, stop: Stop) -> None:
        """Publish version after version up to `until`, or until `stop()`, or until nothing is left to spread.

        While not enough groups are ready, wait for more.
        """
        while self.version < until:
            started = time.monotonic()
            if self._config.spread:  # what waits is all there will be, and a purge may make it less
                count, goes_on = self._share(until), not stop()
            else:
                count = self._config.groups
                goes_on = self._wait(count, stop)
            if count == 0 or not goes_on:
                return
            self.advance(count, waited=time.monotonic() - started)

    def _share(self, until: int) -> int:
        """Return this version's share of the groups that wait."""
        return math.ceil(self._ledger.ready(self._oldest_allowed) / (until - self.version))

    def _wait(self, count: int, stop: Stop) -> bool:
        """Wait until `count` groups may be trained on; return False when asked to stop before.

        With enough of them there, it may still wait for one in flight that would else come too late.
        """
        pause = POLL_S
        while not self._ledger.may_train(self.version, self._config.staleness, count):
            if stop():
                return False
            self._drop_stale()
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_S)
        return not stop()

    def _drop_stale(self) -> None:
        """Drop groups that are too old: sampling pauses while enough groups wait, so none may be left."""
        if self._ledger.ready(0) > self._ledger.ready(self._oldest_allowed):
            self._ledger.claim(self.version + 1, 0, self._oldest_allowed)

    @property
    def _oldest_allowed(self) -> int:
        return self.version - self._config.staleness

    def advance(self, count: int, *, waited: float = 0.0) -> int:
        """Train and publish the next version on `count` groups, or on fewer where the ledger grants fewer.

        Returns the newest version. Nothing is published when no group is granted, nor, with `spread`, when no
        session of theirs has an advantage: weights that nobody trained are no version to judge.
        """
        started, version = time.monotonic(), self.version + 1
        claimed = self._ledger.claim(version, count, self._oldest_allowed)
        if not claimed:
            return self.version
        stats = self._trainer.step(claimed, self.version)
        groups = self._trained(claimed, stats)
        if groups and not stats.rows and self._config.spread:
            self._ledger.drop_claimed(stats.dropped)
            equal = dict.fromkeys((group.id for group in groups), EQUAL)
            self._ledger.drop_claimed(equal, State.NO_ADVANTAGE)
            return self.version
        if not groups:
            return self.version
        figures = step_figures(
            self._store,
            groups,
            stats,
            version=version,
            k1=self._config.policy.k1,
            seconds=time.monotonic() - started,
            waited=waited,
        )
        note = {
            "batch": [group.id for group in groups],
            "prompts": [group.prompt for group in groups],
            "line": to_json(figures),
            "dropped": dict(stats.dropped),
            "reference": self._began_with,
        }
        self._trainer.save(version, note)
        self._settle(self._trainer.publish(version), note)
        return version

    def _trained(self, claimed: Sequence[Group], stats: StepStats) -> list[Group]:
        """Return the claimed groups that the step trained on; the others are dropped with the commit.

        When there is none, they are dropped at once, as no commit follows. Raises StepError in place of the
        last of BAD_BATCHES in a row, whose groups are claimed again at the next start.
        """
        groups = [group for group in claimed if group.id not in stats.dropped]
        for id, reason in stats.dropped.items():
            log.warning("version %d goes without group %s: %s", self.version + 1, id, reason)
        self._bad_batches = 0 if groups else self._bad_batches + 1
        if self._bad_batches == BAD_BATCHES:
            raise StepError(_nothing_trains(self.version, stats.dropped))
        if not groups:
            self._ledger.drop_claimed(stats.dropped)
        return groups


def _nothing_trains(version: int, dropped: Mapping[str, str]) -> str:
    groups = ", ".join(f"{id} ({reason})" for id, reason in dropped.items())
    return (
        f"version {version + 1} cannot be made: {BAD_BATCHES} batches in a row had no group that could be "
        f"trained on, the last of {groups}. The weights are still those of version {version}. Where "
        f"'{NO_GRADIENT}', look at these rewards and at the learning rate, and put an earlier version back "
        f"if the weights have diverged (python -m ostinato.train.republish); where '{BEYOND_CONTEXT}', let "
        f"the engine's max_len be at most the model's context; where '{OTHER_ROUTES}', let the engine serve "
        "the model that is trained"
    )


def train(settings: LearnerProcess, stop: Stop) -> None:
    """Run the trainer to its end, and leave the last version as a checkpoint in the run folder."""
    config, run_dir = settings.learner, settings.run_dir
    with opened(settings, run_dir, config=config, before=settings.before) as start:
        if not start.leads:
            return
        outlets = open_outlets(config.figures_to, run_dir)
        journal = Journal(run_dir / "learner.jsonl")
        learner = Learner(start.trainer, Store.open(settings.store), journal, config, outlets)
        learner.start(start.meta.version)
        first, until = learner.version, settings.until
        if until is None:
            until = sys.maxsize if config.versions is None else first + config.versions
        learner.run(until, stop)
        for outlet in outlets:
            outlet.close()
        parent = first if learner.version > first else None
        start.leave(run_dir / "checkpoint", version=learner.version, parent=parent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the learner as a process; return its exit status."""
    return run(LearnerProcess, train, arguments, "ostinato.train.learner", __doc__)


if __name__ == "__main__":
    sys.exit(main())
