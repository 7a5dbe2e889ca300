"""Simulated developers at work: they use the version that their arm deploys, through the harness and the
gateway.

A developer is shown what the session left in its sandbox, and nothing of the hidden tests, which are not even
run. Their reactions go to the gateway under their own key, as from a real client.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ostinato.deploy.control import DECIDED
from ostinato.harness.client import GatewayClient
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import EpisodeRunner, Left
from ostinato.loop.base import LiveTraffic, Period
from ostinato.loop.live_config import PEOPLE, live_definition
from ostinato.loop.people import PeopleTraffic, recording_notice
from ostinato.loop.resources import RunResources
from ostinato.loop.run import START
from ostinato.loop.stages.problems import stream
from ostinato.model.families import load_renderer
from ostinato.rewards.requests.kinds import kind_of
from ostinato.rewards.requests.strata import Request, strata
from ostinato.sandbox.base import EndedWithinError, Sandbox, SandboxError
from ostinato.store import Ledger, Stage, Store
from ostinato.tasks.base import load_task
from ostinato.tasks.developers import Developer, Reaction, SessionResult, population
from ostinato.tasks.source import Problem
from ostinato.types import Ending, Session, Signal, SignalKind, Source, State, Task, new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A developer and the connection under their own key."""

    developer: Developer
    client: GatewayClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One session of a developer, and their reactions to its result."""

    session_id: str
    reactions: tuple[Reaction, ...]
    void: str | None = None
    """The failure of ours that left nothing to judge; None when there was none."""

    @property
    def pleased(self) -> bool:
        """Return whether the edit was kept as it was, or the answer taken for right."""
        good = {(SignalKind.EDIT_KEPT, 1.0), (SignalKind.NO_EDIT_WANTED, 1.0)}
        return not good.isdisjoint(self.reactions)


def seats(resources: RunResources, developers: Sequence[Developer]) -> list[Seat]:
    """Give each developer a key of their own; simulated people agree to training."""
    for each in developers:
        resources.store.accounts.set_consent(user=each.user, granted=True, by="simulation")
    return [Seat(developer=each, client=resources.client(each.user)) for each in developers]


def live_traffic(resources: RunResources) -> LiveTraffic:
    """Return the traffic that `live.developers` names: simulated developers, or people."""
    live = resources.config.live
    if live.developers == PEOPLE:
        resources.show.say(
            f"people work at {resources.url}: with their keys, or OSTINATO_KEY={resources.key_of_a_person()}"
        )
        resources.show.say(recording_notice(resources.store, resources.run.store))
        tokenizer = load_renderer(resources.run.checkpoint(START)).tokenizer
        traffic = partial(PeopleTraffic, definition=live_definition(live), oldest_s=live.oldest_s)
        return traffic(resources.store, tokenizer, resources.show)
    return SimulatedTraffic(resources, live.developers)


class SimulatedTraffic:
    """Simulated developers, each of whom brings equally many requests in each period."""

    def __init__(self, resources: RunResources, developers: int) -> None:
        self._resources = resources
        self._developers = developers

    async def arrive(
        self, period: Period, since: float, sessions: int, *, closes_at: float = math.inf
    ) -> None:
        """Let every developer work; the arm that is theirs serves them. They never keep a cycle waiting."""
        resources = self._resources
        people = population(self._developers, resources.config.seed)
        each = sessions // len(people)
        problems = stream(resources.config, period)
        office = Office(
            resources.runner(resources.client("simulator")), resources.store, resources.run.tasks / period
        )
        pleased = 0
        with resources.show.stage(f"{len(people)} developers, {period}", total=len(people) * each) as bar:

            def count(visit: Visit) -> None:
                nonlocal pleased
                pleased += visit.pleased
                bar.more(f"{pleased} edits kept and answers taken")

            work = asyncio.ensure_future(
                office.work(seats(resources, people), lambda: next(problems), each, count)
            )
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError as stop:
                if DECIDED not in stop.args:
                    work.cancel()
                office.close()  # who is in the middle of a session ends it
                await asyncio.wait({work})
                raise

    def clock(self) -> float:
        """Return a time by which the attribution windows of all simulated sessions so far are over.

        Simulated developers do all they will ever do as soon as their session ends, so a window's length is
        added to the clock instead of waited for.
        """
        return time.time() + live_definition(self._resources.config.live).mature_s

    def strata(self, sessions: Sequence[Session]) -> Mapping[str, str]:
        """Return the strata of what developers asked for in these sessions, by the task's id."""
        names = sorted({session.task_id for session in sessions if session.task_id})
        paths = [self._resources.run.tasks / period / name for period in ("live", "ab") for name in names]
        asked = {path.name: load_task(path).instruction for path in paths if path.exists()}
        return strata({id_: Request(kind=kind_of(text), language="") for id_, text in asked.items()})


class Office:
    """The place where developers work; each has one session at a time, as people do."""

    def __init__(self, runner: EpisodeRunner, store: Store, directory: Path) -> None:
        self._runner = runner
        self._ledger = Ledger(store)
        self._directory = directory
        self._closed = False

    def close(self) -> None:
        """Let nobody begin another session."""
        self._closed = True

    async def work(
        self,
        seats: Sequence[Seat],
        draw: Callable[[], Problem],
        sessions_each: int,
        on_done: Callable[[Visit], None] = lambda _: None,
    ) -> list[Visit]:
        """Let every developer bring `sessions_each` requests; return the visits that were not void."""
        days = await asyncio.gather(*(self._day(seat, draw, sessions_each, on_done) for seat in seats))
        return [visit for day in days for visit in day]

    async def _day(
        self, seat: Seat, draw: Callable[[], Problem], sessions: int, on_done: Callable[[Visit], None]
    ) -> list[Visit]:
        """Let one developer bring one request after another, each a problem that no stage has shown before.

        Its key is reserved for the session, which will be collected under it.
        """
        visits = []
        for _ in range(sessions):
            if self._closed:
                break
            session_id = new_id()
            while not self._ledger.reserve((problem := draw()).key, Stage.LIVE, [session_id]):
                pass
            visit = await self.visit(seat, problem.provide(self._directory), session_id)
            on_done(visit)
            if visit.void is None:
                visits.append(visit)
            else:
                self._ledger.account_sessions([session_id], State.VOID)
        return visits

    async def visit(self, seat: Seat, task: Task, session_id: str) -> Visit:
        """Run one session, let the developer look at its result, and send their reactions."""
        user, inspection = seat.developer.on(task), _Inspection()
        try:
            outcome, changes = await self._runner.attempt(
                task, user, source=Source.LIVE, client=seat.client, session_id=session_id, after=inspection
            )
        except SandboxError as error:
            return Visit(session_id=session_id, reactions=(), void=f"the sandbox failed: {error}")
        if outcome.ending is Ending.INFRASTRUCTURE:
            return Visit(session_id=session_id, reactions=(), void=outcome.reason)
        reactions = tuple(user.react(inspection.result(outcome, changes)))
        for kind, value in reactions:
            await seat.client.signal(
                Signal(session_id=session_id, kind=kind, value=value, observed_at=time.time())
            )
        return Visit(session_id=session_id, reactions=reactions)


TESTS = "python -m pytest"
GREEN, RED = 0, 1
"""pytest's exit statuses; any other says that the tests could not be run."""


class _Inspection:
    """A developer's look into the sandbox: the sources, and the outcome of the repository's own tests."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}
        self._tests_pass: bool | None = None

    async def __call__(self, sandbox: Sandbox) -> None:
        for path in await sandbox.files():
            if path.endswith(".py"):
                self._sources[path] = (await sandbox.read(path)).decode(errors="replace")
        try:
            status = (await sandbox.exec(TESTS)).exit_code
        except EndedWithinError:  # the session left code that ends the process which runs it
            status = RED
        self._tests_pass = {GREEN: True, RED: False}.get(status)

    def result(self, outcome: Outcome, changes: Left) -> SessionResult:
        """Return the result as the developer sees it; `changes` is None when the tree could not be read."""
        return SessionResult(
            turns=outcome.turns,
            ending=outcome.ending,
            message=outcome.final_message,
            changed=(".",) if changes is None else tuple(sorted(changes)),
            sources=self._sources,
            tests_pass=False if changes is None else self._tests_pass,
        )
