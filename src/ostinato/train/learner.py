"""The policy-gradient learner: a process of its own that turns groups into versions.

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

import argparse
import logging
import math
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ostinato.model.checkpoint import CheckpointError, load, save
from ostinato.model.decoder import Decoder
from ostinato.store import Ledger, Objects, ObjectsError, Phase, Store, StoreError
from ostinato.sync import Manifest, Publisher, Subscriber, SyncError
from ostinato.sync.weights import state_root, to_blobs
from ostinato.train.journal import Journal
from ostinato.train.optimizer import adamw, set_rate, steps_taken
from ostinato.train.policy import PolicyConfig, policy_step
from ostinato.train.state import Note, StateError, States
from ostinato.types import Checkpoint, Group

log = logging.getLogger(__name__)
LEARNING_RATE = 4e-4
RISE_STEPS = 8
"""The rate rises over so many steps: with moments of one batch Adam moves every weight by its full rate."""
POLL_S, LONGEST_POLL_S = 0.02, 0.5


class LearnerError(ValueError):
    """The learner was asked for something that it cannot do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """How groups become a version."""

    groups: int = 10
    """Groups in one step, hence in one version."""
    staleness: int = 4
    """A group is dropped when its oldest token is more versions behind the published one than this."""
    learning_rate: float = LEARNING_RATE
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    spread: bool = False
    """No more groups will come: those that wait are spread evenly over the versions up to the last one, and
    training ends early when they run out. `groups` is then not used."""

    def __post_init__(self) -> None:
        if self.groups < 1 or self.staleness < 0:
            raise ValueError(
                f"a step needs at least one group and a staleness of at least 0, got {self.groups} groups "
                f"and staleness {self.staleness}"
            )


class Learner:
    """Trains the newest published weights on. `decoder` only gives the shape and, before version 0, the
    weights. `before` is the folder of the run that trained them, whose second moments it begins with."""

    def __init__(
        self,
        decoder: Decoder,
        store: Store,
        objects: Objects,
        run_dir: Path,
        config: LearnerConfig,
        *,
        before: Path | None = None,
    ) -> None:
        self.decoder = decoder
        self._store = store
        self._ledger = Ledger(store)
        self._objects = objects
        self._publisher = Publisher(objects)
        self._states = States(run_dir / "states")
        self._moments = None if before is None else States(before / "states")
        self._journal = Journal(run_dir / "learner.jsonl")
        self._config = config
        self.optimizer = adamw(decoder, rate=config.learning_rate)
        self.version = -1
        """The newest version that is published and committed; -1 before `start`."""

    def start(self, first_version: int) -> None:
        """Restore order after whatever happened; publish `first_version` if nothing was published yet.

        Raises LedgerError when the store is the record of another chain of weights.
        """
        head = self._publisher.resume()
        if head is None:
            head = self._publisher.anchor(first_version, self.decoder.state_dict()).version
        self._ledger.bind(Subscriber(self._objects).manifest(head).run)
        self._settle_earlier(head)
        self._settle(head, self._restore(head))
        released = self._ledger.release()
        log.info("at version %d, %d claims released", head, released)

    def _settle_earlier(self, head: int) -> None:
        """Commit what was published before `head` by a learner that died before its commit.

        Somebody else has published since, so `head` does not tell.
        """
        committed = {row.version for row in self._store.versions()}
        for version in self._states.saved(before=head):
            if version not in committed and (note := self._saved(version)) is not None:
                manifest = Subscriber(self._objects).manifest(version)
                self._ledger.commit(version_row(manifest, batch=note["batch"]), note["prompts"])

    def _restore(self, head: int) -> Note:
        """The state saved for `head`; when there is none the published weights, and the second moments of the
        run before if one was named."""
        note = self._saved(head)
        if note is not None:
            return note
        self.decoder.load_state_dict(Subscriber(self._objects).fetch(head))
        self.optimizer.state.clear()
        if self._moments is not None:
            inherited = self._moments.inherit(self.decoder, self.optimizer)
            log.info("second moments of the run before: state %s", inherited)
        return {"batch": [], "prompts": [], "line": {"version": head}}

    def _saved(self, version: int) -> Note | None:
        """Load the state saved for `version`; None unless it is the state of just the published weights."""
        note = self._states.load(version, self.decoder, self.optimizer)
        if note is None:
            return None
        root = state_root(to_blobs(self.decoder.state_dict(), copy=False))
        if root != Subscriber(self._objects).manifest(version).state_root:
            log.warning("the saved state is not that of the published version %d: not used", version)
            return None
        return note

    def _settle(self, version: int, note: Note) -> None:
        """Everything that follows a publication; done again after a restart it changes nothing."""
        manifest = Subscriber(self._objects).manifest(version)
        self._ledger.commit(version_row(manifest, batch=note["batch"]), note["prompts"])
        if version not in {line["version"] for line in self._journal.lines()[-1:]}:
            self._journal.add(note["line"])
        self.version = version

    def run(self, until: int, stop: Callable[[], bool]) -> None:
        """Publish version after version up to `until`, or until `stop()`, or until nothing is left to spread;
        wait while not enough groups are ready."""
        while self.version < until:
            started = time.monotonic()
            count = self._share(until) if self._config.spread else self._config.groups
            if count == 0 or not self._wait(count, stop):
                return
            self.advance(count, waited=time.monotonic() - started)

    def _share(self, until: int) -> int:
        """This version's share of the groups that wait."""
        return math.ceil(self._ledger.ready(self._oldest_allowed) / (until - self.version))

    def _wait(self, count: int, stop: Callable[[], bool]) -> bool:
        """True as soon as `count` groups are ready, False when told to stop."""
        pause = POLL_S
        while self._ledger.ready(self._oldest_allowed) < count:
            if stop():
                return False
            self._drop_stale()
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_S)
        return not stop()

    def _drop_stale(self) -> None:
        """Sampling pauses while enough groups wait, so one that is too old must not be left waiting."""
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
        self._states.save(version, self.decoder, self.optimizer, note)
        self._publisher.delta(version, self.decoder.state_dict())
        self._settle(version, note)
        return version

    def _step(self, groups: Sequence[Group]) -> dict[str, Any]:
        samples = [sample for group in groups for sample in group.samples]
        rewards = [reward for group in groups for reward in group.rewards]
        rise = min(1.0, (steps_taken(self.optimizer) + 1) / RISE_STEPS)
        set_rate(self.optimizer, self._config.learning_rate * rise)
        stats = policy_step(self.decoder, self.optimizer, samples, len(rewards), self._config.policy)
        return {
            "reward": sum(rewards) / max(1, len(rewards)),
            "sessions": len(rewards),
            "staleness": max((self.version - group.oldest_version for group in groups), default=0),
            "kinds": tally(groups),
            "stale_so_far": self._ledger.tally(Phase.STALE),
            **asdict(stats),
        }


def tally(groups: Sequence[Group]) -> dict[str, tuple[int, float]]:
    """By the kind of their task, how many groups there are and the mean length of their rows in tokens."""
    rows: dict[str, list[int]] = defaultdict(list)
    for group in groups:
        rows[group.kind] += [len(sample.ids) for sample in group.samples]
    counts = Counter(group.kind for group in groups)
    return {kind: (counts[kind], fmean(lengths)) for kind, lengths in rows.items()}


def version_row(manifest: Manifest, batch: Sequence[str]) -> Checkpoint:
    """What the store keeps of a published version."""
    return Checkpoint(
        version=manifest.version,
        parent=manifest.parent,
        digest=manifest.digest,
        kind=manifest.kind,
        bytes=sum(part.bytes for part in manifest.parts),
        created_at=time.time(),
        batch=tuple(batch),
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ostinato.train.learner", description=__doc__)
    parser.add_argument("--store", required=True, help="SQLite file or SQLAlchemy URL")
    parser.add_argument("--objects", required=True, help="folder or URL of the object store")
    parser.add_argument("--checkpoint", required=True, type=Path, help="shape, tokenizer and first weights")
    parser.add_argument(
        "--run-dir", required=True, type=Path, help="states, learner.jsonl, the last checkpoint"
    )
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--until", type=int, help="stop once this version is published")
    ends.add_argument("--versions", type=int, help="stop after so many new versions")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--groups", type=int, default=LearnerConfig().groups, help="groups in one version")
    size.add_argument("--spread", action="store_true", help="spread the groups that wait over the versions")
    parser.add_argument("--before", type=Path, help="run folder to take second moments from")
    parser.add_argument("--staleness", type=int, default=LearnerConfig().staleness)
    parser.add_argument("--learning-rate", type=float, default=LearnerConfig().learning_rate)
    for each in fields(PolicyConfig):
        flag = "--" + each.name.replace("_", "-")
        parser.add_argument(flag, type=type(each.default), default=each.default, help="see docs/train.md")
    options = parser.parse_args(arguments)
    try:
        config_of(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def config_of(options: argparse.Namespace) -> LearnerConfig:
    """What the command line says of the steps. Raises ValueError."""
    return LearnerConfig(
        groups=options.groups,
        staleness=options.staleness,
        learning_rate=options.learning_rate,
        policy=PolicyConfig(**{each.name: getattr(options, each.name) for each in fields(PolicyConfig)}),
        spread=options.spread,
    )


def train(options: argparse.Namespace, stop: Callable[[], bool]) -> None:
    """Runs a learner from its command line to its end and saves the last version as a checkpoint."""
    decoder, tokenizer, meta = load(options.checkpoint)
    if options.spread and options.until is None and options.versions is None:
        raise LearnerError("--spread needs to know over how many versions: give --until or --versions")
    learner = Learner(
        decoder,
        Store.open(options.store),
        Objects.open(options.objects),
        options.run_dir,
        config_of(options),
        before=options.before,
    )
    learner.start(meta.version)
    until = options.until
    if until is None:
        until = sys.maxsize if options.versions is None else learner.version + options.versions
    first = learner.version
    learner.run(until, stop)
    parent = first if learner.version > first else None
    out = options.run_dir / "checkpoint"
    save(out, decoder, tokenizer, version=learner.version, parent=parent, harness=meta.harness)


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        train(parse(arguments), stopping.is_set)
    except (CheckpointError, LearnerError, StateError, StoreError, ObjectsError, SyncError) as error:
        log.error("the learner stopped: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
