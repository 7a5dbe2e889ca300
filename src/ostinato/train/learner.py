"""The policy-gradient learner: it turns groups into versions, with any `Trainer`.

::

    claim ─► step ─► save state ─► publish ─► commit
                                      │
                    the one moment at which the version exists

Killed before it: the groups are released and the step is done again from the saved state of the version
before. Killed after it: the restart finds the version published, and the saved state of just these weights
names the groups that went into them, which are then committed. A version that somebody else published, such
as an older one that was put back, is not what the saved state holds: nothing is committed with it and the
groups are released. Either way nothing is trained twice and nothing is lost.
"""

import logging
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ostinato.store import Ledger, Phase, Store
from ostinato.sync import Manifest
from ostinato.train.base import Note, Trainer, record_of
from ostinato.train.config import LearnerConfig, LearnerProcess
from ostinato.train.journal import Journal
from ostinato.train.opened import opened
from ostinato.train.process import Stop, run
from ostinato.types import Group

log = logging.getLogger(__name__)
POLL_S, LONGEST_POLL_S = 0.02, 0.5


class Learner:
    """Trains the newest published weights on with the groups of the ledger."""

    def __init__(self, trainer: Trainer, store: Store, journal: Journal, config: LearnerConfig) -> None:
        self._trainer = trainer
        self._store = store
        self._ledger = Ledger(store)
        self._journal = journal
        self._config = config
        self.version = -1
        """The newest version that is published and committed; -1 before `start`."""

    def start(self, first_version: int) -> None:
        """Restore order after any interruption; publish `first_version` if nothing was published yet.

        Raises LedgerError when the store is the record of another chain of weights.
        """
        head = self._trainer.resume() or self._trainer.publish(first_version)
        self._ledger.bind(head.run)
        self._settle_earlier(head)
        note = self._trainer.restore(head)
        if note is None:
            self._trainer.begin(head)
            note = {"batch": [], "prompts": [], "line": {"version": head.version}}
        self._settle(head, note)
        released = self._ledger.release()
        log.info("at version %d, %d claims released", head.version, released)

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
                self._ledger.commit(record_of(manifest, note["batch"]), note["prompts"])

    def _settle(self, manifest: Manifest, note: Note) -> None:
        """Do everything that follows a publication; done again after a restart it changes nothing."""
        self._ledger.commit(record_of(manifest, note["batch"]), note["prompts"])
        if manifest.version not in {line["version"] for line in self._journal.lines()[-1:]}:
            self._journal.add(note["line"] | {"weights": manifest.state_root})
        self.version = manifest.version

    def run(self, until: int, stop: Stop) -> None:
        """Publish version after version up to `until`, or until `stop()`, or until nothing is left to spread.

        While not enough groups are ready, wait for more.
        """
        while self.version < until:
            started = time.monotonic()
            count = self._share(until) if self._config.spread else self._config.groups
            if count == 0 or not self._wait(count, stop):
                return
            self.advance(count, waited=time.monotonic() - started)

    def _share(self, until: int) -> int:
        """Return this version's share of the groups that wait."""
        return math.ceil(self._ledger.ready(self._oldest_allowed) / (until - self.version))

    def _wait(self, count: int, stop: Stop) -> bool:
        """Wait until `count` groups are ready; return False when asked to stop before."""
        pause = POLL_S
        while self._ledger.ready(self._oldest_allowed) < count:
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

        Returns the newest version. Nothing is published when no group is granted: weights that nobody trained
        are no version.
        """
        started, version = time.monotonic(), self.version + 1
        groups = self._ledger.claim(version, count, self._oldest_allowed)
        if not groups:
            return self.version
        line = self._step(groups)
        line |= {"version": version, "seconds": time.monotonic() - started, "waited": waited}
        prompts = [group.prompt for group in groups]
        note = {"batch": [group.id for group in groups], "prompts": prompts, "line": line}
        self._trainer.save(version, note)
        self._settle(self._trainer.publish(version), note)
        return version

    def _step(self, groups: Sequence[Group]) -> dict[str, Any]:
        rewards = [reward for group in groups for reward in group.rewards]
        return {
            "reward": sum(rewards) / max(1, len(rewards)),
            "sessions": len(rewards),
            "staleness": max((self.version - group.oldest_version for group in groups), default=0),
            "kinds": tally(groups),
            "stale_so_far": self._ledger.tally(Phase.STALE),
            **self._trainer.step(groups),
        }


def tally(groups: Sequence[Group]) -> dict[str, tuple[int, float]]:
    """Return, by the kind of their task, the number of groups and the mean length of their rows in tokens."""
    rows: dict[str, list[int]] = defaultdict(list)
    for group in groups:
        rows[group.kind] += [len(sample.ids) for sample in group.samples]
    counts = Counter(group.kind for group in groups)
    return {kind: (counts[kind], fmean(lengths)) for kind, lengths in rows.items()}


def train(settings: LearnerProcess, stop: Stop) -> None:
    """Run the trainer to its end, and leave the last version as a checkpoint in the run folder."""
    config, run_dir = settings.learner, settings.run_dir
    with opened(settings, run_dir, config=config, before=settings.before) as start:
        if not start.leads:
            return
        learner = Learner(
            start.trainer, Store.open(settings.store), Journal(run_dir / "learner.jsonl"), config
        )
        learner.start(start.meta.version)
        first, until = learner.version, settings.until
        if until is None:
            until = sys.maxsize if config.versions is None else first + config.versions
        learner.run(until, stop)
        parent = first if learner.version > first else None
        start.leave(run_dir / "checkpoint", version=learner.version, parent=parent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the learner as a process; return its exit status."""
    return run(LearnerProcess, train, arguments, "ostinato.train.learner", __doc__)


if __name__ == "__main__":
    sys.exit(main())
