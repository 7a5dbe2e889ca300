"""Simulated developers at work: they use whatever version their arm deploys, through the harness and the
gateway.

A developer is shown what the session left in its sandbox, and nothing of the hidden tests, which are not even
run. What they do goes to the gateway under their own key, as from a real client.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.harness.client import GatewayClient
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import EpisodeRunner, Left
from ostinato.sandbox.base import EndedWithinError, Sandbox, SandboxError
from ostinato.store import Ledger, Stage, Store
from ostinato.tasks.developers import Developer, Reaction, SessionResult
from ostinato.tasks.pebble import Pebble, provide
from ostinato.types import Ending, Signal, SignalKind, Source, State, Task, new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A developer and the connection under their own key."""

    developer: Developer
    client: GatewayClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One session of a developer, and what they did when they saw what came of it."""

    session_id: str
    reactions: tuple[Reaction, ...]
    void: str | None = None
    """Why there is nothing to judge (something of ours failed), None when there is."""

    @property
    def pleased(self) -> bool:
        """Whether the edit was kept as it was, or the answer taken for right."""
        good = {(SignalKind.EDIT_KEPT, 1.0), (SignalKind.NO_EDIT_WANTED, 1.0)}
        return not good.isdisjoint(self.reactions)


class Traffic:
    """Lets developers work; each has one session at a time, as people do."""

    def __init__(self, runner: EpisodeRunner, store: Store, directory: Path) -> None:
        self._runner = runner
        self._ledger = Ledger(store)
        self._directory = directory

    async def work(
        self,
        seats: Sequence[Seat],
        draw: Callable[[], Pebble],
        sessions_each: int,
        on_done: Callable[[Visit], None] = lambda _: None,
    ) -> list[Visit]:
        """Every developer brings `sessions_each` requests; gives the visits that were not void."""
        days = await asyncio.gather(*(self._day(seat, draw, sessions_each, on_done) for seat in seats))
        return [visit for day in days for visit in day]

    async def _day(
        self, seat: Seat, draw: Callable[[], Pebble], sessions: int, on_done: Callable[[Visit], None]
    ) -> list[Visit]:
        visits = []
        for _ in range(sessions):
            visit = await self._request(seat, draw)
            on_done(visit)
            if visit.void is None:
                visits.append(visit)
            else:
                self._ledger.account_sessions([visit.session_id], State.VOID)
        return visits

    def _reserve(self, draw: Callable[[], Pebble], session_id: str) -> Pebble:
        """The next task whose prompt no stage has shown before; the session will be collected under it."""
        while not self._ledger.reserve((pebble := draw()).key, Stage.LIVE, [session_id]):
            pass
        return pebble

    async def _request(self, seat: Seat, draw: Callable[[], Pebble]) -> Visit:
        session_id = new_id()
        pebble = self._reserve(draw, session_id)
        task = provide(pebble, self._directory / pebble.id)
        return await self.visit(seat, task, session_id)

    async def visit(self, seat: Seat, task: Task, session_id: str) -> Visit:
        """One request: the session, the developer's look at what it left, and what they do about it."""
        user, looked = seat.developer.on(task), _Look()
        try:
            outcome, changes = await self._runner.attempt(
                task, user, source=Source.LIVE, client=seat.client, session_id=session_id, after=looked
            )
        except SandboxError as error:
            return Visit(session_id=session_id, reactions=(), void=f"the sandbox failed: {error}")
        if outcome.ending is Ending.INFRASTRUCTURE:
            return Visit(session_id=session_id, reactions=(), void=outcome.reason)
        reactions = tuple(user.react(looked.seen(outcome, changes)))
        for kind, value in reactions:
            await seat.client.signal(
                Signal(session_id=session_id, kind=kind, value=value, observed_at=time.time())
            )
        return Visit(session_id=session_id, reactions=reactions)


TESTS = "python -m pytest"
GREEN, RED = 0, 1
"""pytest's exit statuses; any other says that the tests could not be run."""


class _Look:
    """A developer's look into the sandbox: the sources, and what the repository's own tests say."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}
        self._tests_pass: bool | None = None

    async def __call__(self, sandbox: Sandbox) -> None:
        for path in await sandbox.files():
            if path.endswith(".py"):
                self._sources[path] = (await sandbox.read(path)).decode(errors="replace")
        try:
            status = (await sandbox.exec(TESTS)).exit_code
        except EndedWithinError:  # what the session left ends whatever runs it
            status = RED
        self._tests_pass = {GREEN: True, RED: False}.get(status)

    def seen(self, outcome: Outcome, changes: Left) -> SessionResult:
        """`changes` of None is a tree that nothing can be made of: something changed, and nothing works."""
        return SessionResult(
            turns=outcome.turns,
            ending=outcome.ending,
            message=outcome.final_message,
            changed=(".",) if changes is None else tuple(sorted(changes)),
            sources=self._sources,
            tests_pass=False if changes is None else self._tests_pass,
        )
