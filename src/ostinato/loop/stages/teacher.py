"""The noisy scripted teacher in place of the model: the real harness sends requests, a script responds.

The teacher stands where an engine stands, behind the gateway: requests and responses are token ids, so that
its sessions are recorded like those of a model.

::

    Agent ─► gateway ─► this engine ─► text of the prompt ─► messages ─► Demonstrator.act ─► token ids
                                                                Wording ┘                └ Wording
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from ostinato.harness.episode import CardUser, EpisodeRunner
from ostinato.harness.profiles.profile import profile
from ostinato.loop.stages.dialect import Wording
from ostinato.model.families import Renderer
from ostinato.model.transcript import messages_of
from ostinato.sandbox.base import SandboxError
from ostinato.store import Ledger, Stage, Store
from ostinato.tasks.source import Problem
from ostinato.tasks.teaching.demonstrate import Demonstrator, demonstrator
from ostinato.types import Ending, GenerateRequest, Source, State, Task, new_id

RETRIES = 2
"""The times that a demonstration is given again which a failure of ours spoilt."""
MOST_LEFT_OUT = 1 / 20
"""The largest share of the demonstrations that teaching goes on without."""


class TeacherPolicy:
    """A policy that responds in each session as the teacher that was put in charge of it."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._teachers: dict[str, tuple[Demonstrator, Wording]] = {}

    def take_charge(self, session_id: str, teacher: Demonstrator, dialect: Wording) -> None:
        self._teachers[session_id] = teacher, dialect

    def leave(self, session_id: str) -> None:
        del self._teachers[session_id]

    async def __call__(self, request: GenerateRequest) -> tuple[int, ...]:
        messages = messages_of(self._renderer.tokenizer.decode(request.prompt_ids))
        teacher, dialect = self._teachers[request.session_id]
        said = dialect.worded(teacher.act(dialect.meant(messages)))
        return tuple(self._renderer.say(said))


class Lessons:
    """The teacher's demonstrations on practice tasks. A task that was shown before is passed over.

    A demonstration depends on the seed, its task and its number, and not on which one ends first. Those of a
    task are given one after another, under each profile of `runners` in turn. One that a failure of ours
    spoils is given again in another session, at most `RETRIES` times, and then left out.

    With `examined`, a store, each is verified by the hidden tests, and the findings are recorded there.
    """

    def __init__(
        self,
        runners: Mapping[str, EpisodeRunner],
        policy: TeacherPolicy,
        ledger: Ledger,
        directory: Path,
        at_once: int,
        *,
        examined: Store | None = None,
    ) -> None:
        self._ways = [(runner, Wording(profile(name))) for name, runner in runners.items()]
        self._ledger = ledger
        self._policy = policy
        self._directory = directory
        self._examined = examined
        self._slots = asyncio.Semaphore(at_once)
        self._most = 0
        self.sessions = 0
        self.void = 0
        """Attempts that a failure of ours spoilt."""
        self.left_out = 0
        """Demonstrations of which every attempt was spoilt."""

    async def give(
        self,
        draw: Callable[[], Problem],
        lessons: int,
        demonstrations: int,
        seed: int,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        """Show `lessons` tasks, each of them `demonstrations` times; `on_done` is called after each time.

        Raises SandboxError when more than MOST_LEFT_OUT of all demonstrations are left out.
        """
        self._most = int(lessons * demonstrations * MOST_LEFT_OUT)
        await asyncio.gather(*(self._lesson(draw, demonstrations, seed, on_done) for _ in range(lessons)))

    async def _lesson(
        self, draw: Callable[[], Problem], demonstrations: int, seed: int, on_done: Callable[[], None]
    ) -> None:
        async with self._slots:
            attempts = [[new_id() for _ in range(1 + RETRIES)] for _ in range(demonstrations)]
            task = self._next(draw, [id for ids in attempts for id in ids])
            for number, (ids, way) in enumerate(zip(attempts, cycle(self._ways), strict=False)):
                await self._demonstrate(task, ids, way, f"{seed}/{task.key}/{number}")
                on_done()

    def _next(self, draw: Callable[[], Problem], sessions: Sequence[str]) -> Task:
        """Return the next task that no stage has shown and that has a solution to show."""
        while True:
            problem = draw()
            if self._ledger.reserve(problem.key, Stage.LESSON, sessions):
                task = problem.provide(self._directory)
                if demonstrator(task, random.Random(0)) is not None:
                    return task

    async def _demonstrate(
        self, task: Task, ids: Sequence[str], way: tuple[EpisodeRunner, Wording], seed: str
    ) -> None:
        """Give one demonstration, in the first of the sessions `ids` that nothing of ours spoils."""
        reason = ""
        for session_id in ids:
            reason = await self._spoilt(task, session_id, way, random.Random(seed))
            if not reason:
                self.sessions += 1
                return
            self.void += 1
            self._ledger.account_sessions([session_id], State.VOID)
        self.left_out += 1
        if self.left_out > self._most:
            raise SandboxError(
                f"{self.left_out} demonstrations stayed void after {RETRIES} retries, and at most "
                f"{self._most} may be left out. The last, on task {task.id}: {reason}"
            )

    async def _spoilt(
        self, task: Task, session_id: str, way: tuple[EpisodeRunner, Wording], rng: random.Random
    ) -> str:
        """Give the demonstration in this session; return the failure of ours that spoilt it, or nothing."""
        teacher = demonstrator(task, rng)
        assert teacher is not None  # `_next` has passed over those without
        runner, dialect = way
        self._policy.take_charge(session_id, teacher, dialect)
        try:
            outcome, left = await runner.attempt(
                task, CardUser(task), source=Source.TEACHER, session_id=session_id
            )
            if self._examined is not None:
                episode = await runner.verify(task, outcome, left)
                self._examined.record((), episode.signals(), ())
                outcome = episode.outcome
        except SandboxError as error:
            return f"the sandbox failed: {error}"
        finally:
            self._policy.leave(session_id)
        return outcome.reason or "no reason" if outcome.ending is Ending.INFRASTRUCTURE else ""
