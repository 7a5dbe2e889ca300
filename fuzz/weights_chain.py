"""Random schedules of everything that may happen to a chain of weights: is a wrong tensor ever served?

Two trainers (the second takes over), two readers, a region with a mirror and a reader of its own, and a
collector work at once on one store. In every fourth schedule a trainer is a job of two ranks, each of which
publishes its rows; when one is killed, the job is started again. Before every request to the store a seeded
scheduler decides which actor makes the next one, whether it fails and how (refused, response lost, late,
pretended, truncated, flipped, swapped), which actor is killed, and when a bit flips at rest. Afterwards the
faults end, damage at rest stays, and training goes on.

- A *mismatch* is a version that was served with other bits than its publisher committed.
- A *lost* version was acknowledged to its publisher, and readers get something else.
- A *stuck* reader does not reach the head although training went on past the next anchor.
"""

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import obstore
import torch
from obstore.store import MemoryStore

from fuzz.faulty_objects import Fault, FaultyObjects
from ostinato.store import Objects, ObjectsError
from ostinato.sync import (
    Cadence,
    Fenced,
    OutOfOrder,
    Overtaken,
    Publisher,
    RankGroup,
    Shard,
    Subscriber,
    SyncError,
    collect,
)
from ostinato.sync.mirror import Mirror
from ostinato.sync.reader.subscriber import RELIST_EVERY
from ostinato.sync.writer import ranks

CADENCE = Cadence(anchor_every=4, skip=2)
WRITES = [fault for fault in Fault if fault is not Fault.NONE]
COMMITS = [Fault.REFUSE, Fault.LOSE, Fault.LATE, Fault.PRETEND]
"""The faults of a commit: a store creates a small object under a condition whole or not at all."""
DAMAGED = ("parts", "ways", "versions")
EXPECTED = (SyncError, ObjectsError)
Tensors = dict[str, torch.Tensor]


RANKS, RANKED_EVERY, PATIENCE_S = 2, 4, 20.0
"""The ranks of a job; jobs occur in one schedule of `RANKED_EVERY`; a rank waits `PATIENCE_S` by `Ticks`."""


class Ticks:
    """A clock that advances only while somebody waits, so that a schedule is the same each time."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@contextmanager
def ticking() -> Iterator[None]:
    """Let ranks wait by such a clock."""
    real, ranks.time = ranks.time, Ticks()  # type: ignore[assignment]
    try:
        yield
    finally:
        ranks.time = real


@dataclass(slots=True)
class Job:
    """The agreement of the ranks of a job outside of the chain: the number of its start, and their plans."""

    name: str
    starts: int = 1
    known: set[int] = field(default_factory=set)
    """The ranks that were alive since the last start."""
    plans: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)
    """The attempt, and whether it is an anchor, by start and version."""

    def start(self, rank: int) -> None:
        """Start a rank; when it starts for the second time, all ranks begin anew."""
        if rank in self.known:
            self.again()
        self.known.add(rank)

    def again(self) -> None:
        self.starts += 1

    def group(self, rank: int) -> RankGroup:
        return RankGroup(rank=rank, size=RANKS, job=f"{self.name} {self.starts}", patience_s=PATIENCE_S)


def shard(tensors: "Tensors", rank: int) -> dict[str, torch.Tensor | Shard]:
    """Return this rank's rows of `w` and its share of the other tensors."""
    rows = tensors["w"].tensor_split(RANKS)
    start = sum(map(len, rows[:rank]))
    own = {name: tensors[name] for name in ("b", "still")[rank::RANKS]}
    return {"w": Shard(tensor=rows[rank], start=start, rows=len(tensors["w"])), **own}


class KilledError(BaseException):
    """The end of a process, which only the schedule may catch."""


def weights(version: int, attempt: int) -> Tensors:
    """Return a trainer's weights of `version`: most values stay, and every attempt differs."""
    values = torch.arange(256, dtype=torch.float32)
    for step in range(version):
        values[step * 37 % 256] += step + 1
    values[version * 11 % 256] = attempt + 0.5
    return {"w": values.to(torch.bfloat16).reshape(16, 16), "b": values[:8].clone(), "still": torch.ones(3)}


def bits(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a digest that does not depend on anything the chain computes itself."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Scheduler:
    """The scheduler: one actor at a time runs, up to its next request to the store, as the seed decides."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.faults = True
        self.kinds: Counter[str] = Counter()
        self._turns: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._alive: dict[str, threading.Thread] = {}
        self._failed: list[BaseException] = []

    def plan(self, actor: str) -> Callable[[str, str], Fault]:
        """Return the function that a store calls before each request of `actor`.

        It waits for the actor's turn, then returns the fault of the request.
        """

        def next_fault(operation: str, key: str) -> Fault:
            if actor in self._turns:
                self._back.release()
                self._turns[actor].acquire()
            return self._fault(actor, operation, key)

        return next_fault

    def _fault(self, actor: str, operation: str, key: str) -> Fault:
        if not self.faults:
            return Fault.NONE
        if actor in self._turns and self.chance.random() < 0.01:
            self.kinds["killed"] += 1
            raise KilledError
        if self.chance.random() > 0.06:
            return Fault.NONE
        commit = operation == "create" and ("/versions/" in key or "/epochs/" in key)
        fault = self.chance.choice(COMMITS if commit else WRITES)
        self.kinds[fault] += 1
        return fault

    def start(self, actor: str, act: Callable[[], None]) -> None:
        def run() -> None:
            self._turns[actor].acquire()
            try:
                act()
            except BaseException as error:  # handed to the caller of `run`
                self._failed.append(error)
            del self._alive[actor]
            self._back.release()

        self._turns[actor] = threading.Semaphore(0)
        self._alive[actor] = threading.Thread(target=run, daemon=True)
        self._alive[actor].start()

    def run(self, between: Callable[[], None]) -> None:
        """Run until every actor has finished; call `between` between any two requests."""
        while self._alive:
            self._turns[self.chance.choice(sorted(self._alive))].release()
            self._back.acquire()
            between()
        self._turns.clear()
        if self._failed:
            raise self._failed[0]


class World:
    """One schedule: a bucket, a region's bucket, the actors, and what was acknowledged to them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler(self.chance)
        self._ranked = seed % RANKED_EVERY == RANKED_EVERY - 1
        self._raw = {"source": MemoryStore(), "region": MemoryStore()}
        self._stores: list[FaultyObjects] = []
        self._attempts = 0
        self.proposed: dict[int, set[str]] = {}
        self.acknowledged: dict[int, set[str]] = {}
        self.served: dict[int, set[str]] = {}
        self.readers: list[Subscriber] = []
        self.restored = self.anchored = False
        self.stuck = self.patience = 0
        self._backup: dict[tuple[str, str], bytes] = {}

    def store(self, actor: str, bucket: str = "source") -> FaultyObjects:
        objects = FaultyObjects(Objects(self._raw[bucket], bucket), self.scheduler.plan(actor))
        self._stores.append(objects)
        return objects

    def run(self) -> None:
        start, work = self.scheduler.start, self._work
        for name, first in (("trainer", True), ("successor", False)):
            job = Job(name)
            if not self._ranked:
                start(name, lambda name=name, first=first: work(name, self._train, first=first))  # type: ignore[misc]
            for rank in range(RANKS if self._ranked else 0):
                rows = lambda name=f"{name}, rank {rank}", rank=rank, job=job: work(  # type: ignore[misc]  # noqa: E731
                    name, self._train_rows, rank=rank, job=job
                )
                start(f"{name}, rank {rank}", rows)
        for name, bucket in (("reader", "source"), ("other reader", "source"), ("far reader", "region")):
            start(name, lambda name=name, bucket=bucket: work(name, self._read, bucket=bucket))  # type: ignore[misc]
        start("mirror", lambda: work("mirror", self._mirror))
        start("collector", lambda: work("collector", self._collect))
        self.scheduler.run(self._between)
        self._settle()

    def _work(self, actor: str, life: Callable[..., Iterator[None]], **named: object) -> None:
        """Work to the end; after a kill, mostly start anew without any memory."""
        while True:
            try:
                for _ in life(actor, **named):
                    pass
            except KilledError:
                if self.chance.random() < 0.8:
                    continue
            except Fenced:
                self.scheduler.kinds["fenced"] += 1
            return

    def _train(self, actor: str, *, first: bool) -> Iterator[None]:
        publisher, objects = None, self.store(actor)
        for _ in range(self.chance.randint(6, 12) if first else self.chance.randint(2, 8)):
            if publisher is None or self.chance.random() < 0.05:
                publisher = Publisher(objects, cadence=CADENCE)
                if not self._resumed(publisher):
                    publisher = None
                    continue
            self._publish(publisher)
            yield

    def _train_rows(self, actor: str, *, rank: int, job: Job) -> Iterator[None]:
        publisher, start, objects = None, 0, self.store(actor)
        job.start(rank)
        for _ in range(self.chance.randint(6, 12)):
            if publisher is None or start != job.starts:
                start = job.starts
                publisher = Publisher(objects, cadence=CADENCE, group=job.group(rank))
                if not self._resumed(publisher):
                    publisher = None
                    continue
            if not self._publish_rows(publisher, rank, job, start):
                publisher = None
                if start == job.starts:
                    job.again()
            yield

    def _publish_rows(self, publisher: Publisher, rank: int, job: Job, start: int) -> bool:
        """Publish as `_publish` does, by one rank: all ranks publish rows of the same weights."""
        version = 0 if publisher.version is None else publisher.version + 1
        if (start, version) not in job.plans:
            self._attempts += 1
            job.plans[start, version] = self._attempts, not version or self.chance.random() < 0.1
        attempt, anchored = job.plans[start, version]
        tensors = weights(version, attempt)
        self.proposed.setdefault(version, set()).add(bits(tensors))
        publish = publisher.anchor if anchored else publisher.delta
        for _ in range(2):
            try:
                publish(version, shard(tensors, rank))
            except Fenced:
                raise
            except EXPECTED as error:
                self.scheduler.kinds[f"rank: {type(error).__name__}"] += 1
                continue
            self.acknowledged.setdefault(version, set()).add(bits(tensors))
            self.scheduler.kinds["published by a rank"] += 1
            return True
        return False

    def _resumed(self, publisher: Publisher) -> bool:
        try:
            publisher.resume()
        except Fenced:
            raise
        except EXPECTED:
            return False
        return True

    def _publish(self, publisher: Publisher) -> bool:
        """Publish one version, with retries like a supervisor's; return whether it was acknowledged."""
        self._attempts += 1
        version = 0 if publisher.version is None else publisher.version + 1
        tensors = weights(version, self._attempts)
        self.proposed.setdefault(version, set()).add(bits(tensors))
        for _ in range(3):
            try:
                self._publish_once(publisher, version, tensors)
            except Fenced:
                raise
            except (Overtaken, OutOfOrder):
                self.scheduler.kinds["overtaken"] += 1
                self._resumed(publisher)
                return False
            except EXPECTED:
                continue
            self.acknowledged.setdefault(version, set()).add(bits(tensors))
            return True
        return False

    def _publish_once(self, publisher: Publisher, version: int, tensors: Tensors) -> None:
        if publisher.version is None or self.chance.random() < 0.1:
            publisher.anchor(version, tensors, parent=publisher.version)
        else:
            publisher.delta(version, tensors)

    def _read(self, actor: str, *, bucket: str) -> Iterator[None]:
        reader = Subscriber(self.store(actor, bucket))
        self.readers.append(reader)
        for _ in range(self.chance.randint(10, 30)):
            try:
                self._read_once(reader)
            except EXPECTED as error:
                self.scheduler.kinds[f"reader: {type(error).__name__}"] += 1
            yield

    def _read_once(self, reader: Subscriber) -> None:
        head = reader.head()
        if head is None:
            return
        if self.chance.random() < 0.2:
            reader.prefetch()
        version = head if self.chance.random() < 0.8 else self.chance.randint(0, head)
        self._serve(reader, version)
        self.scheduler.kinds["served"] += 1

    def _mirror(self, actor: str) -> Iterator[None]:
        mirror = None
        for _ in range(self.chance.randint(10, 25)):
            try:
                mirror = mirror or Mirror(self.store(actor), self.store(actor, "region"))
                mirror.step()
            except EXPECTED:
                self.scheduler.kinds["mirror refused"] += 1
            yield

    def _collect(self, actor: str) -> Iterator[None]:
        for _ in range(self.chance.randint(6, 12)):
            for bucket in ("source", "region"):
                try:
                    self.scheduler.kinds["collected"] += collect(self.store(actor, bucket)).objects
                except EXPECTED:
                    self.scheduler.kinds["collector refused"] += 1
            yield

    def _between(self) -> None:
        if self.chance.random() < 0.02:
            self.chance.choice(self._stores).arrive()
        if self.chance.random() < 0.004:
            self._flip()

    def _flip(self) -> None:
        """Flip one bit at rest."""
        bucket = self.chance.choice(sorted(self._raw))
        rows = [row for page in obstore.list(self._raw[bucket]) for row in page if row["size"]]
        keys = sorted(row["path"] for row in rows if row["path"].split("/")[1] in DAMAGED)
        if keys:
            key = self.chance.choice(keys)
            data = bytearray(obstore.get(self._raw[bucket], key).bytes())
            self._backup.setdefault((bucket, key), bytes(data))
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
            obstore.put(self._raw[bucket], key, bytes(data), mode="overwrite")
            self.scheduler.kinds["flipped at rest"] += 1

    def _settle(self) -> None:
        """End the faults and publish on: every reader must reach what a trainer publishes now."""
        self.scheduler.faults = False
        for objects in self._stores:
            objects.arrive()
        publisher = self._last_trainer()
        mirror = Mirror(self.store("last"), self.store("last", "region"))
        fresh = [Subscriber(self.store("last", bucket)) for bucket in self._raw]
        for _ in range(CADENCE.anchor_every + 1):
            if not self._publish(publisher):
                raise AssertionError("a publication failed although the faults were over")
            while mirror.step():
                pass
            self.stuck = sum(
                not self._reaches(reader, publisher.version) for reader in [*self.readers, *fresh]
            )
            self.patience += 1
            if not self.stuck:
                break
        self._look_back(fresh[0])

    def _last_trainer(self) -> Publisher:
        """Return a trainer that goes on from the head.

        Where the head cannot be read, it does what the documentation tells an operator: it restores damaged
        manifests, and if the chain is still broken it publishes the trainer's own weights as an anchor.
        """
        publisher = Publisher(self.store("last"), cadence=CADENCE)
        if not self._resumed(publisher):
            self._restore()
        if publisher.version is None and not self._resumed(publisher):
            self.anchored = True
            version = (Subscriber(self.store("last")).head() or 0) + 1
            publisher = Publisher(self.store("last"), cadence=CADENCE)
            tensors = weights(version, 0)
            self.proposed.setdefault(version, set()).add(bits(tensors))
            publisher.anchor(version, tensors)
            self.acknowledged.setdefault(version, set()).add(bits(tensors))
        return publisher

    def _restore(self) -> None:
        self.restored = True
        for (bucket, key), data in self._backup.items():
            if "/versions/" in key:
                obstore.put(self._raw[bucket], key, data, mode="overwrite")

    def _reaches(self, reader: Subscriber, version: int | None) -> bool:
        """Return whether a reader reaches `version` within the polls after which it lists all versions."""
        try:
            head = max(reader.head() or 0 for _ in range(RELIST_EVERY))
            return head == version and self._serve(reader, head) in self.acknowledged[head]
        except EXPECTED:
            return False

    def _look_back(self, reader: Subscriber) -> None:
        """Serve every acknowledged version again, as far as it was not collected."""
        for version in self.acknowledged:
            with suppress(*EXPECTED):
                self._serve(reader, version)

    def _serve(self, reader: Subscriber, version: int) -> str:
        digest = bits(reader.fetch(version))
        self.served.setdefault(version, set()).add(digest)
        return digest

    @property
    def mismatches(self) -> int:
        """The number of versions served with different bits, or with bits that no trainer proposed."""
        return sum(
            len(digests) > 1 or not digests <= self.proposed[version]
            for version, digests in self.served.items()
        )

    @property
    def lost(self) -> int:
        """The number of versions that were acknowledged to a trainer and are served with other bits."""
        return sum(
            len(digests | self.served.get(version, digests)) > 1
            for version, digests in self.acknowledged.items()
        )


def run_schedule(seed: int) -> Counter[str]:
    """Run one schedule and return the counts of what happened; an unexpected failure is raised."""
    world = World(seed)
    with ticking():
        world.run()
    return world.scheduler.kinds + Counter(
        {
            "schedules": 1,
            "digest_mismatches_served": world.mismatches,
            "acknowledged_lost": world.lost,
            "readers_stuck": world.stuck,
            "versions": len(world.acknowledged),
            "versions_to_recover": world.patience,
            "manifests_brought_back": int(world.restored),
            "anchored_by_hand": int(world.anchored),
        }
    )
