"""The reconciler of practice: it drives every slot of every open group to its end, by the rows of the store.

Desired: as many groups under way as the policies allow, and each of their slots scored. Actual: the rows, and
the tasks of this process. Each pass of the loop starts what is missing and writes down what came::

    plan ─► start ─► wait ─► record ─► offer ─► plan …

Invariants: a prompt is reserved when its slots are planned and never again; a group is offered once, whole,
when all its slots are over; a prompt of which no group comes is dropped with its reason. Only the loop writes
rows. A process that starts on the rows of one that was killed goes on where it was: sessions that were in
flight are sampled again as the next attempt, sessions that had ended are verified from what was kept of them,
verified ones stay, and whole groups are offered. A void session is tried again once, then leaves its group;
it is never a reward of zero.

Any number of reconcilers work on one store. Each holds the prompts that it planned by a lease, and takes over
in the same way what another holds whose lease is over. One that was suspended beyond its lease leaves alone
what it holds no more.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ostinato.harness.episode import Episode, Sampled
from ostinato.rewards.definition import Definition
from ostinato.rollout import sampling
from ostinato.rollout.config import SYNCHRONOUS, PracticeConfig
from ostinato.rollout.credit import Scored, credit_group, samples
from ostinato.rollout.curriculum import Curriculum
from ostinato.rollout.policies import Counts, allowed, policies
from ostinato.rollout.sampling import SlotWork
from ostinato.store import Store
from ostinato.store.ledger.leases import LeaseLostError, Leases
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.phases import Phase
from ostinato.store.ledger.slot_rows import INTERRUPTED, Slot, SlotState
from ostinato.store.ledger.slots import Slots, again
from ostinato.tasks.source import Problem
from ostinato.train.config import BASELINES
from ostinato.train.objective.group import baseline_of
from ostinato.types import Ending, Group, Sample, State, Task

log = logging.getLogger(__name__)
RENEWALS = 4
"""A lease is renewed so many times before it would be over."""
POLL_S = 0.2
"""Seconds after which the trainer's progress is looked at; a session that ends is noticed at once."""
FAILURES = 1
"""The failures of ours after which a slot is tried once more; one more, and it is dropped."""

Place = tuple[str, int]
"""A slot: its prompt and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the trainer does with the groups: the batch of a step, how stale it may be, and the end.

    >>> Training(batch=10, staleness=4, until=32).batch
    10
    """

    batch: int
    staleness: int
    until: int
    """The version after which training is over."""
    baseline: str = "others"
    """The baseline that a session's reward is compared with, by the name of a setting."""

    def __post_init__(self) -> None:
        if self.baseline not in BASELINES:
            raise ValueError(f"the baseline {self.baseline!r} is none of {', '.join(BASELINES)}")


@dataclass(slots=True)
class Progress:
    """Running totals of this process, for a display."""

    groups: int = 0
    solved: int = 0
    untrainable: int = 0
    recent: list[float] = field(default_factory=list)


@dataclass(slots=True)
class OpenGroup:
    """A group that is not offered yet: its problem, its slots, and its task once that is written."""

    problem: Problem
    slots: list[Slot]
    task: Task | None = None


class Reconciler:
    """A sampler of practice, which holds prompts under its `name`. `served` returns the version that the
    engine serves, None while it is away; synchronous runs wait for it.
    """

    def __init__(
        self,
        work: SlotWork,
        store: Store,
        definition: Definition,
        directory: Path,
        training: Training,
        *,
        seed: int,
        name: str = "sampler",
        served: Callable[[], Awaitable[int | None]] | None = None,
    ) -> None:
        config = work.config
        config.refuse_deadlock(training.batch)
        if config.mode == SYNCHRONOUS and served is None:
            raise ValueError("a synchronous run must know which version the engine serves: give `served`")
        self._work = work
        self._config: PracticeConfig = config
        self._store = store
        self._leases = Leases(store, name, seconds=config.lease_s)
        self._renewed = -config.lease_s
        self._ledger = Ledger(store, self._leases.owner)
        self._slots = Slots(store, self._leases.owner)
        self._definition = definition
        self._directory = directory
        self._training = training
        self._seed = seed
        self._served = served
        self._policies = policies(
            config, batch=training.batch, staleness=training.staleness, until=training.until
        )
        self._open: dict[str, OpenGroup] = {}
        self._elsewhere: dict[str, Problem] = {}
        """Problems that were drawn here, and whose prompts other samplers had planned."""
        self._tasks: dict[Place, asyncio.Task[Sampled | list[Episode]]] = {}
        self.progress = Progress()

    async def run(self, problems: Iterator[Problem], stop: Callable[[], bool]) -> None:
        """Sample from `problems` until `stop()`; return when no session is in flight."""
        curriculum = Curriculum(
            problems,
            harder=self._config.harder,
            seed=self._seed,
            progress=lambda: max(0, self._slots.newest_version()) / max(1, self._training.until),
            efforts=self._slots.efforts,
        )
        self._leases.enter()
        self._elsewhere = curriculum.find(self._slots.planned())
        try:
            while not (over := stop()) or self._tasks:
                try:
                    await self._pass(curriculum, over=over)
                except LeaseLostError as error:
                    self._let_go(error)
        finally:
            await self._cancel()
        self._leases.leave()

    async def _pass(self, curriculum: Curriculum, *, over: bool) -> None:
        """Start what is missing, wait, and write down what came."""
        self._keep_lease(curriculum)
        if not over:
            await self._plan(curriculum)
            self._start()
        self._verify()
        await self._wait()
        self._record()
        self._offer()

    def _keep_lease(self, curriculum: Curriculum) -> None:
        """Renew the lease, and take over what nobody holds."""
        now = time.monotonic()
        if now - self._renewed < self._config.lease_s / RENEWALS:
            return
        self._leases.renew()
        self._renewed = now
        if free := self._leases.take_over():
            self._take_up(curriculum, free)

    def _let_go(self, error: LeaseLostError) -> None:
        """Forget the prompts that another sampler has taken over. Raises the error when there are none."""
        held = self._leases.held()
        lost = self._open.keys() - held
        if not lost:
            raise error
        log.warning("%d prompts are left to another sampler: %s", len(lost), error)
        for prompt in lost:
            self._elsewhere[prompt] = self._open.pop(prompt).problem
        for place in [place for place in self._tasks if place[0] in lost]:
            self._tasks.pop(place).cancel()

    def _take_up(self, curriculum: Curriculum, free: Collection[str]) -> None:
        """Take up the slots that an earlier process, or another sampler that is gone, left open."""
        left = {prompt: slots for prompt, slots in self._slots.open().items() if prompt in free}
        problems = self._problems(curriculum, left)
        for prompt, slots in left.items():
            if prompt in problems:
                self._open[prompt] = OpenGroup(problems[prompt], slots)
            else:
                self._drop(prompt, slots, "its task is in the sources no more")
        taken = [slot for prompt in problems for slot in self._open[prompt].slots]
        for slot in [each for each in taken if each.state is SlotState.FINISHED and each.kept is None]:
            self._fail(slot, "what it left was purged")
        cut = [slot for slot in taken if slot.state is SlotState.RUNNING]
        if cut:
            self._void(id for slot in cut for id in sampling.names(slot.session_id, self._config.branches))
            self._move(cut, [self._again(slot, INTERRUPTED) for slot in cut])
            log.info("%d sessions were in flight and are sampled again", len(cut))

    def _problems(self, curriculum: Curriculum, prompts: Collection[str]) -> dict[str, Problem]:
        """Return the problems of these prompts, of which some were drawn here before."""
        known = {prompt: self._elsewhere.pop(prompt) for prompt in prompts if prompt in self._elsewhere}
        found = curriculum.find(set(prompts) - known.keys()) if len(known) < len(prompts) else {}
        return known | found

    async def _plan(self, curriculum: Curriculum) -> None:
        """Reserve as many new prompts as the policies allow, and plan their slots."""
        if not allowed(self._policies, self._fewest()):
            return  # the rows, which take time to read, can only forbid more
        more = allowed(self._policies, self._counts())
        if more and self._served is not None and self._config.mode == SYNCHRONOUS:
            more = more if await self._served() == self._slots.newest_version() else 0
        while more > 0 and (problem := curriculum.draw()) is not None:
            ids = [self._id(problem.key, number, 0) for number in range(self._config.group_size)]
            if slots := self._slots.plan(problem.key, ids):
                self._open[problem.key] = OpenGroup(problem, slots)
                more -= 1
            else:
                self._elsewhere[problem.key] = problem

    def _fewest(self) -> Counts:
        """Return what is under way here: the rows never show less, and no policy allows more for more."""
        busy = sum(not slot.over for slot in self._all_slots())
        return Counts(open=len(self._open), waiting=0, claimed=0, busy=busy, newest=0)

    def _counts(self) -> Counts:
        phases = self._slots.phases()
        return Counts(
            open=phases[Phase.RESERVED],
            waiting=phases[Phase.OFFERED],
            claimed=phases[Phase.CLAIMED],
            busy=sum(not slot.over for slot in self._all_slots()),
            newest=max(0, self._slots.newest_version()),
        )

    def _start(self) -> None:
        """Start planned sessions, the oldest groups' first, while there is a place."""
        places = self._config.groups_at_once * self._config.group_size - len(self._tasks)
        planned = [slot for slot in self._all_slots() if slot.state is SlotState.PLANNED][: max(0, places)]
        running = [replace(slot, state=SlotState.RUNNING, reason=None) for slot in planned]
        for slot in self._move(planned, running):
            seed = sampling.sampling_seed(self._seed, slot.prompt, slot.number)
            self._do(slot, self._work.sample(self._task(slot.prompt), slot.session_id, seed))

    def _verify(self) -> None:
        """Start the verification of sessions that ended."""
        for slot in self._all_slots():
            if slot.state is SlotState.FINISHED and (slot.prompt, slot.number) not in self._tasks:
                kept = sampling.unpack(slot.kept or b"")
                self._do(slot, self._work.verify(self._task(slot.prompt), kept))

    async def _wait(self) -> None:
        """Wait until a task has ended, or a moment for the trainer."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(POLL_S)

    def _record(self) -> None:
        """Write down what came of the tasks that have ended."""
        for place, task in [each for each in self._tasks.items() if each[1].done()]:
            del self._tasks[place]
            slot, result = self._open[place[0]].slots[place[1]], task.result()
            if isinstance(result, Sampled):
                self._finish(slot, result)
            else:
                self._score(slot, result)

    def _finish(self, slot: Slot, sampled: Sampled) -> None:
        """Keep what a session left, unless a failure of ours spoilt all of it."""
        outcomes = [outcome for outcome, _ in sampled.ended]
        if all(outcome.ending is Ending.INFRASTRUCTURE for outcome in outcomes):
            self._fail(slot, outcomes[0].reason)
            return
        turns, thinking = sampling.effort(outcomes)
        kept = sampling.pack(sampled)
        done = replace(slot, state=SlotState.FINISHED, kept=kept, turns=turns, thinking=thinking)
        self._move([slot], [done])

    def _score(self, slot: Slot, episodes: list[Episode]) -> None:
        """Record the verdicts; void branches leave, and a slot without any other is tried again."""
        sound = [episode for episode in episodes if episode.void is None]
        if not sound:
            self._fail(slot, episodes[0].void or "")
            return
        self._void(episode.session_id for episode in episodes if episode.void is not None)
        self._store.record((), [signal for episode in sound for signal in episode.signals()])
        scored = Scored(
            trunk=sampling.unpack(slot.kept or b"").trunk,
            branches=tuple(episode.session_id for episode in sound),
            solved=sum(episode.solved for episode in sound),
        )
        self._move([slot], [replace(slot, state=SlotState.SCORED, kept=scored.pack())])

    def _fail(self, slot: Slot, reason: str) -> None:
        """Try a slot again that a failure of ours spoilt, or drop it when that happened before."""
        log.warning("void session %s on %s: %s", slot.session_id, slot.prompt, reason)
        self._void(sampling.names(slot.session_id, self._config.branches))
        if slot.failures < FAILURES:
            self._move([slot], [self._again(slot, reason)])
        else:
            self._move([slot], [replace(slot, state=SlotState.DROPPED, reason=reason, kept=None)])

    def _offer(self) -> None:
        """Offer the groups whose slots are all over; synchronous runs keep to the order of their prompts."""
        for prompt, group in list(self._open.items()):
            if all(slot.over for slot in group.slots):
                self._close(prompt, group)
            elif self._config.mode == SYNCHRONOUS:
                return

    def _close(self, prompt: str, group: OpenGroup) -> None:
        scored = [slot.kept for slot in group.slots if slot.state is SlotState.SCORED and slot.kept]
        trees = [Scored.unpack(kept) for kept in scored]
        purged = self._store.purged(id for tree in trees for id in tree.sessions)
        sound = [tree for tree in trees if purged.isdisjoint(tree.sessions)]
        del self._open[prompt]
        if not sound:
            self._drop(prompt, group.slots, "every session was void or purged")
        elif not self._credit(group.problem, sound):
            self._drop(prompt, group.slots, "no session could be trained on")

    def _credit(self, problem: Problem, trees: list[Scored]) -> bool:
        """Offer the samples of a whole group; return False when there is none, or one was purged."""
        baseline = baseline_of(self._training.baseline)
        credited, rewards = credit_group(self._store, self._definition, trees, baseline)
        rows: list[Sample] = []
        for each in credited:
            own = samples(self._ledger, each, summaries=self._config.train_summaries)
            rows += own
            self.progress.untrainable += not own
        self._count(trees)
        if not rows:
            return False
        id = sampling.group_id(self._seed, problem.key)
        group = Group(
            id=id,
            prompt=problem.key,
            samples=tuple(rows),
            rewards=rewards,
            kind=problem.kind,
            trees=tuple(tree.sessions for tree in trees),
        )
        return self._ledger.offer(group)

    def _drop(self, prompt: str, slots: list[Slot], reason: str) -> None:
        """Drop a prompt of which no group comes. Sessions that were sound are stale, since nobody trains."""
        ids = [id for slot in slots for id in sampling.names(slot.session_id, self._config.branches)]
        self._ledger.drop(prompt, reason)
        self._ledger.account_late(ids)

    def _count(self, trees: list[Scored]) -> None:
        solved = sum(each.solved for each in trees)
        sessions = sum(len(each.branches) for each in trees)
        self.progress.groups += 1
        self.progress.solved += solved
        self.progress.recent = [*self.progress.recent[-39:], solved / sessions]

    def _void(self, session_ids: Iterator[str] | list[str]) -> None:
        self._ledger.account_sessions(session_ids, State.VOID)

    def _again(self, slot: Slot, reason: str) -> Slot:
        return again(slot, self._id(slot.prompt, slot.number, slot.attempt + 1), reason)

    def _move(self, slots: list[Slot], changes: list[Slot]) -> list[Slot]:
        if changes:
            for slot in self._slots.move(slots, changes):
                self._open[slot.prompt].slots[slot.number] = slot
        return changes

    def _all_slots(self) -> Iterator[Slot]:
        return (slot for group in self._open.values() for slot in group.slots)

    def _task(self, prompt: str) -> Task:
        group = self._open[prompt]
        if group.task is None:
            group.task = group.problem.provide(self._directory)
        return group.task

    def _do(self, slot: Slot, work: Awaitable[Sampled] | Awaitable[list[Episode]]) -> None:
        self._tasks[slot.prompt, slot.number] = asyncio.ensure_future(work)

    def _id(self, prompt: str, number: int, attempt: int) -> str:
        return sampling.session_id(self._seed, prompt, number, attempt)

    async def _cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
