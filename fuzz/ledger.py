"""Random schedules of everything that may happen to a prompt: is one trained twice, lost or left open?

The reconciler of practice, people, simulated developers, a collector, a learner and an operator work on one
store. Before and after each of their calls to the ledger, the slots, the states or the objects, another actor
may act, or this one may die, there or between two statements of a transaction; or the power fails. Then the
real SQLite files are restored with a random part of the log beyond the flushed part; how much was flushed
follows from the setting of the connection that committed. Store, reconciler, ledger, collector and learner
are the real ones. Only the model is
not: its weights are a tally, to which a step adds 1 for each group, so the published weights show what they
were trained on.

- *trained_twice* counts prompts that two published versions were trained on, or one version twice;
- *lost* counts prompts that are recorded as trained and are in no weights, or the reverse, promises that a
  power failure broke, trainable sessions that were forgotten, practice sessions that had ended and were
  sampled again, and transitions of a slot that there are not;
- *unended* counts prompts and slots without an end, and turns without a state, after everything was closed
  out;
- *stale* counts groups that were claimed with a reward that newer signals contradict, or without consent.
"""

import asyncio
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import event, select
from torch import nn

from fuzz.practice import NumberRunner, defects, problem, reconciler
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout import reconciler as reconciler_module
from ostinato.rollout.collect import Collector
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.store import Ledger, LedgerError, Objects, Phase, Stage, Store
from ostinato.store.ledger.slot_rows import Slot
from ostinato.store.ledger.slots import Slots
from ostinato.store.purge import purge
from ostinato.store.sql import sqlite_file
from ostinato.store.sql.schema import trainings
from ostinato.sync import Fenced, Publisher, Subscriber
from ostinato.tasks.source import Problem
from ostinato.train.base import NO_GRADIENT, StepStats
from ostinato.train.config import LearnerConfig
from ostinato.train.journal import Journal
from ostinato.train.learner import Learner
from ostinato.train.local import DecoderModel
from ostinato.train.samples import samples_of
from ostinato.train.trainer import ChainTrainer
from ostinato.types import (
    Completion,
    Ending,
    FinishReason,
    Group,
    Sample,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
)

MOST_PROMPTS = 64
BATCH = 2
PRACTICE_CONFIG = PracticeConfig(group_size=2, groups_at_once=2, ready_ahead=3)
reconciler_module.POLL_S = 0.001
STEPS = (10, 22)
BAD_EVERY, BAD = 9, 4
"""Groups of the prompts whose number has the remainder BAD give no gradient."""
KILL, CUT, INTERVENE = 0.02, 0.008, 0.12
"""The chances, at one point, of a kill, of a power failure, and of an action by another actor."""
STATEMENT = 0.25
"""The chance that a death falls between two statements, not between two calls."""
FULL = 2
LATER = 1e9
"""A time at which every session's window is over, in seconds since the epoch."""
COMPILED: dict[Any, Any] = {}
"""Compiled statements, shared by the stores of all schedules: compiling them anew would be a third of the
work."""
USERS = ("ada", "bob", "eve")
OUTCOMES = (SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED)


class DiedError(BaseException):
    """The end of one process, which only the schedule may catch."""


class PowerCutError(BaseException):
    """The end of all processes, after which unflushed bytes may be lost."""


class Tally(nn.Module):
    """The model: a tally of how often each prompt was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(MOST_PROMPTS))
        self.norm = nn.LayerNorm(1, bias=False)


class TallyTrainer(ChainTrainer):
    """The real trainer, except that a step adds to the tally; it cannot train on every ninth prompt."""

    model: DecoderModel
    number: Callable[[str], int]

    def step(self, groups: Sequence[Group], version: int) -> StepStats:
        dropped = {}
        with torch.no_grad():
            for group in groups:
                number = self.number(group.prompt)
                if number % BAD_EVERY == BAD:
                    dropped[group.id] = NO_GRADIENT
                else:
                    self.model.decoder.embedding[number] += 1
        return StepStats(dropped=dropped)


class Interrupted:
    """An object before and after whose calls the schedule may intervene."""

    def __init__(self, inner: Any, point: Callable[[], None]) -> None:
        self._inner, self._point = inner, point

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            self._point()
            result = attribute(*arguments, **named)
            self._point()
            return result

        return call


class World:
    """One schedule: all actors, the promises made to them, and the content of the weights."""

    failing = 0.1
    """The share of sandboxes and verifications that fail."""

    def __init__(self, seed: int, folder: Path, template: Path) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.objects = Objects.open("memory://")
        self.kinds: Counter[str] = Counter()
        self.numbers: dict[str, int] = {}
        self.sessions: list[str] = []
        self.reserved: set[str] = set()
        self.refused: dict[str, bool] = {}
        self.by_operator: set[int] = set()
        self.learner: Learner | None = None
        self.bound = False
        """Return True when this chain of weights is the one that belongs to the store."""
        self.stale = self.broken = 0
        self._stores = 0
        self._deep, self._faults = 0, True
        self._statements = 0
        self._sampling = False
        self._open(template, b"")

    def _open(self, database: Path, log: bytes) -> None:
        path = self.folder / f"{self._stores}.db"
        self._stores += 1
        shutil.copyfile(database, path)
        if log:
            Path(f"{path}-wal").write_bytes(log)
        self.path, self.store = path, Store.open(path)
        self.ledger = Ledger(self.store)
        self._log = Path(f"{path}-wal")
        self._watch_flushes(self.store.database)

    def _watch_flushes(self, database: Any) -> None:
        """Note after each transaction how much of the log is flushed, by the setting of its connection."""
        event.listen(database.engine, "before_cursor_execute", self._statement)
        file = database._backend
        for engine in (file.engine, file._writer):
            engine.dialect = COMPILED.setdefault("dialect", engine.dialect)
        file._writer = file._writer.execution_options(compiled_cache=COMPILED)
        file.engine = file.engine.execution_options(compiled_cache=COMPILED)
        with database.engine.connect() as connection:
            connection.connection.execute("PRAGMA wal_autocheckpoint=0").close()
            flushes = connection.connection.execute("PRAGMA synchronous").fetchone()[0] >= FULL
        direct = file._prepared._connection.execute("PRAGMA synchronous").fetchone()[0] >= FULL
        self._flushed = self._length()
        for name, full in (("write", flushes), ("recording", direct)):
            setattr(database, name, self._flushing(getattr(database, name), full))

    def _flushing(self, transaction: Any, full: bool) -> Any:
        @contextmanager
        def flushing() -> Iterator[Any]:
            with transaction() as connection:
                yield connection
            if full:
                self._flushed = self._length()

        return flushing

    def _length(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _statement(self, *_: object) -> None:
        if self._statements:
            self._statements -= 1
            if not self._statements:
                self.kinds["between statements"] += 1
                self._end()

    def point(self) -> None:
        """Let anything happen here."""
        if not self._faults:
            return
        drawn = self.chance.random()
        if drawn < KILL + CUT:
            if self.chance.random() < STATEMENT:
                self._statements = self.chance.randint(1, 12)
            else:
                self._end()
        elif drawn < KILL + CUT + INTERVENE and not self._deep:
            self._deep += 1
            try:
                self.chance.choice(self._interventions())()
            finally:
                self._deep -= 1

    def _end(self) -> None:
        if self.chance.random() < CUT / (KILL + CUT):
            raise PowerCutError
        raise DiedError

    def run(self) -> None:
        """Run the schedule, then let everybody work without faults until nothing is left to do."""
        for _ in range(self.chance.randint(*STEPS)):
            action = self.chance.choice(self._actions())
            try:
                action()
            except DiedError:
                self.kinds["kills"] += 1
                if action == self.learn:
                    self.learner = None
            except PowerCutError:
                self._statements, self._deep = 0, 0
                self._cut()
            self._statements, self._deep = 0, 0
            self.kinds[action.__name__] += 1
        self._settle()

    def _actions(self) -> list[Callable[[], None]]:
        often = [self.practise, self.live, self.collect, self.learn]
        return [
            *often,
            *often,
            self.learn,
            self.give_late_feedback,
            *self._rare(),
            self.simulate,
            self.intrude,
        ]

    def _rare(self) -> list[Callable[[], None]]:
        return [self.retract, self.forget, self.republish]

    def _interventions(self) -> list[Callable[[], None]]:
        return [self.practise, self.live, self.give_late_feedback, self.give_late_feedback, *self._rare()]

    def _cut(self) -> None:
        """Cut the power: any unflushed part of the log may be lost."""
        self.kinds["power_cuts"] += 1
        self.learner = None
        log = self._log.read_bytes() if self._log.exists() else b""
        surviving = log[: self.chance.randint(min(self._flushed, len(log)), len(log))]
        old, before = self.store, self.path
        self._open(before, surviving)
        old.close()
        self._check_promises()

    def _check_promises(self) -> None:
        for prompt in self.reserved:
            self.broken += self.ledger.reserve(prompt)
        for user, refused in self.refused.items():
            self.broken += refused and self.store.accounts.consented([("", user)])["", user]

    def practise(self) -> None:
        """Let a reconciler take up what is there and go on for a while, until it ends or dies."""
        passes = iter(range(self.chance.randint(1, 6)))
        self._sample(PRACTICE_CONFIG, lambda _: next(passes, None) is None)

    def _sample(
        self, config: PracticeConfig, stop: Callable[[Reconciler], bool], *, until: int = sys.maxsize
    ) -> None:
        """Run a reconciler until `stop` says so; there is one at a time."""
        if self._sampling:
            return
        runner = NumberRunner(self.store, version=self._version, point=self.point, failing=self.failing)

        async def committed() -> int:
            return Slots(self.store).newest_version()

        training = Training(batch=BATCH, staleness=3, until=until)
        one = reconciler(self.store, runner, self.folder, config, training, served=committed)
        self._interrupt(one)
        self._sampling = True
        try:
            asyncio.run(one.run(self._problems(), lambda: stop(one)))
        finally:
            self._sampling = False

    def _interrupt(self, one: Reconciler) -> None:
        """Let anything happen before and after the reconciler's transactions; note what they promised."""
        slots = one._slots
        plan = slots.plan

        def noted(prompt: str, session_ids: Sequence[str]) -> list[Slot]:
            if planned := plan(prompt, session_ids):
                self.reserved.add(prompt)
            return planned

        slots.plan = noted  # type: ignore[method-assign]
        one._slots = Interrupted(slots, self.point)  # type: ignore[assignment]
        one._ledger = Interrupted(one._ledger, self.point)  # type: ignore[assignment]

    def _problems(self) -> Iterator[Problem]:
        """Yield the problems of practice from the first one on, while the weights have places for them."""
        for number in count():
            each = problem(number)
            if each.key not in self.numbers and not self._number(each.key):
                return
            yield each

    def live(self) -> None:
        """Record a person's session, and perhaps their feedback."""
        name = f"s{len(self.numbers)}"
        if self._number(f"live/{name}"):
            self._session(name)

    def simulate(self) -> None:
        """Record a simulated developer's session on a task whose key is reserved."""
        prompt = f"key{len(self.numbers)}"
        if self._number(prompt):
            name = f"sim-{prompt}"
            if self.ledger.reserve(prompt, Stage.LIVE, [name]):
                self.reserved.add(prompt)
                self.point()
                self._session(name)

    def _session(self, name: str) -> None:
        user = self.chance.choice(USERS)
        if user not in self.refused:
            self.store.accounts.set_consent(user=user, granted=True, by=user)
            self.refused[user] = False
        self._record(name, Source.LIVE, user)
        self.sessions.append(name)
        self.point()
        if self.chance.random() < 0.8:
            self._give_feedback(name)
        if self.chance.random() < 0.9:
            self.store.end_session(name, Ending.FINISHED)

    def _record(self, name: str, source: Source, user: str = "us") -> str:
        consent = source is not Source.LIVE or not self.refused.get(user, True)
        about = Session(
            id=name,
            source=source,
            user=user,
            arm="main",
            task_id=None,
            harness="h",
            started_at=1.0,
            consent=consent,
        )
        self.store.record([turn(name, self._version())], sessions=[about])
        return name

    def _give_feedback(self, name: str) -> None:
        kind = self.chance.choice(OUTCOMES)
        signal = Signal(session_id=name, kind=kind, value=1.0, observed_at=self.chance.random())
        if self.store.session(name) is not None and not self.store.purged([name]):
            self.store.record([], [signal])

    def give_late_feedback(self) -> None:
        """Record more feedback on a session, late."""
        if self.sessions:
            self._give_feedback(self.chance.choice(self.sessions))

    def retract(self) -> None:
        """Withdraw a user's consent, or grant it again."""
        user, granted = self.chance.choice(USERS), self.chance.random() < 0.4
        self.store.accounts.set_consent(user=user, granted=granted, by=user)
        self.refused[user] = not granted

    def forget(self) -> None:
        """Purge a session at its user's request."""
        known = [name for name in self.sessions if self.store.session(name) is not None]
        if known and self.chance.random() < 0.5:
            purge(self.store, session=self.chance.choice(known), by="root")
            self._flushed = self._length()  # the purge emptied the log into the database

    def collect(self) -> None:
        collector = Collector(self.store, LIVE)
        collector._ledger = Interrupted(collector._ledger, self.point)  # type: ignore[assignment]
        collector.harvest(["main"], lambda _: {}, as_of=LATER)

    def learn(self) -> None:
        """Take a step of the learner, or start it."""
        try:
            if self.learner is None:
                self._start_learner()
            else:
                self.learner.advance(self.chance.randint(1, 3))
        except Fenced:
            self.learner = None

    def _start_learner(self) -> None:
        config = LearnerConfig(staleness=self.chance.choice([1, 3, 1000]))
        self.learner = self._learner(self.objects, config)
        self.learner.start(0)
        self.bound = True

    def _learner(self, objects: Objects, config: LearnerConfig, *, stateless: bool = False) -> Learner:
        model = DecoderModel(Tally(), self.folder)  # type: ignore[arg-type]
        trainer = TallyTrainer(model, objects, config)
        trainer.number = self.numbers.__getitem__
        learner = Learner(trainer, self.store, Journal(self.folder / "learner.jsonl"), config)
        claim = learner._ledger.claim
        learner._ledger.claim = lambda *about: self._claimed(claim(*about))  # type: ignore[method-assign]
        for owner, name in ((learner, "_ledger"), (model, "_states"), (trainer, "_publisher")):
            setattr(owner, name, Interrupted(getattr(owner, name), self.point))
        if stateless:
            nothing = {"saved": lambda *_, **__: [], "load": lambda *_: None}
            model._states = type("NoStates", (), nothing)()
        return learner

    def _claimed(self, groups: list[Group]) -> list[Group]:
        """Count claims that contradict the latest feedback; nobody else has acted since the claim."""
        for group in groups:
            name = group.samples[0].session_id
            session = self.store.session(name)
            if session is not None and session.source is Source.LIVE:
                now = LIVE.score(name, self.store.turns(name), self.store.signals(name), as_of=LATER).total
                agreed = self.store.accounts.consented([("", session.user)])["", session.user]
                self.stale += abs(now - group.rewards[0]) > 1e-9 or not agreed
        return groups

    def republish(self) -> None:
        """Publish an older version under the next number, as an operator does."""
        publisher = Publisher(self.objects)
        head = publisher.resume()
        if head and self.chance.random() < 0.5:
            weights = Subscriber(self.objects).fetch(self.chance.randint(0, head))
            publisher.delta(head + 1, weights)
            self.by_operator.add(head + 1)

    def intrude(self) -> None:
        """Start a second run, with weights of its own, on this store: it must be refused."""
        if not self.bound:
            return
        other = self._learner(Objects.open("memory://"), LearnerConfig(), stateless=True)
        try:
            other.start(0)
        except LedgerError:
            self.kinds["intruders refused"] += 1
        else:
            self.broken += 1

    def _version(self) -> int:
        return max(0, (self.learner.version if self.learner else 0))

    def _number(self, prompt: str) -> bool:
        """Number a prompt; return False when the weights have no place for another."""
        if len(self.numbers) < MOST_PROMPTS:
            self.numbers[prompt] = len(self.numbers)
            return True
        return False

    def _settle(self) -> None:
        self._faults = False
        self.ledger.void_interrupted()
        if self.chance.random() < 0.7:  # else practice is over, and what is half done is closed out
            self._sample(PRACTICE_CONFIG, lambda one: not one._open, until=0)
        learner = self._learner(self.objects, LearnerConfig(staleness=1000, spread=True))
        learner.start(0)
        self.collect()
        learner.run(learner.version + 2, lambda: False)
        self.collect()
        self.ledger.close_out()
        self.store.close()

    def verdict(self) -> Counter[str]:
        """Return the counts that must be zero, from the weights and from the file."""
        trained = self._in_weights()
        with closing(sqlite3.connect(self.path)) as file:
            recorded = dict(file.execute(str(select(trainings.c.prompt, trainings.c.version))).fetchall())
            query = "SELECT prompt FROM prompts WHERE phase = ?"
            ended = {prompt for (prompt,) in file.execute(query, (Phase.TRAINED.value,))}
        store = Store.open(self.path)
        ledger = Ledger(store)
        names = {prompt for prompt, _ in trained}
        apart = set(recorded.items()) ^ set(trained)
        times = Counter(prompt for prompt, _ in trained.elements())
        wrong = defects(store)
        lost = len(apart) + len(ended ^ names) + self.broken + self._forgotten(store)
        lost += wrong["redone"] + wrong["illegal"]
        counts = Counter(
            trained_twice=max(sum(n > 1 for n in times.values()), ledger.trained_twice()),
            lost=lost,
            unended=ledger.unended() + ledger.unaccounted() + wrong["open"],
            stale=self.stale,
            trained=len(names),
        )
        store.close()
        return counts

    def _in_weights(self) -> Counter[tuple[str, int]]:
        """Return how often each prompt was trained on in each version that a learner published."""
        reader, names = Subscriber(self.objects), list(self.numbers)
        counts: Counter[tuple[str, int]] = Counter()
        before = reader.fetch(0)["embedding"]
        for version in range(1, (reader.head() or 0) + 1):
            now = reader.fetch(version)["embedding"]
            if version not in self.by_operator:
                for i, n in enumerate((now - before).int().tolist()):
                    if n:
                        counts[names[i], version] += n
            before = now
        return counts

    def _forgotten(self, store: Store) -> int:
        """Count ended sessions with consent and feedback whose prompt never came to an end."""
        known = [one for name in self.sessions if (one := store.session(name)) is not None and one.ending]
        phases = Ledger(store).live_prompts([one.id for one in known])
        agreed = store.accounts.consented([("", one.user) for one in known])
        trainable = [one for one in known if one.consent and agreed["", one.user] and store.signals(one.id)]
        kinds = {s.kind for one in trainable for s in store.signals(one.id)}
        assert kinds <= {*OUTCOMES}
        return sum(phases[one.id][1] in {None, Phase.RESERVED} for one in trainable)


def turn(session: str, version: int) -> Turn:
    completion = Completion(ids=(1,), logprobs=(-0.5,), versions=(version,), finish=FinishReason.STOP)
    about: dict[str, Any] = {"arm": "main", "started_at": 1.0, "latency_s": 0.1}
    return Turn(session_id=session, index=0, segment=0, prompt_ids=(2,), completion=completion, **about)


def sample(session: str, version: int, advantage: float) -> Sample:
    (row,) = samples_of([turn(session, version)], advantage)
    return replace(row, advantage=advantage)


def run_schedule(seed: int, folder: Path) -> Counter[str]:
    """Run one schedule and return the counts of what happened; an unplanned error is raised."""
    template = folder / "template.db"
    if not template.exists():
        Store.open(template).close()
    sqlite_file.EVERY_ROWS = sys.maxsize  # a copy of the log would hide what was not flushed
    with tempfile.TemporaryDirectory(dir=folder) as own:
        world = World(seed, Path(own), template)
        world.run()
        return world.kinds + world.verdict() + Counter(schedules=1)
