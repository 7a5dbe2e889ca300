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
from ostinato.store import Ledger, Stage
from ostinato.tasks.source import Problem
from ostinato.tasks.teaching.demonstrate import Demonstrator, demonstrator
from ostinato.types import GenerateRequest, Source, Task, new_id


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

    The demonstrations of a task are given under each profile of `runners` in turn.
    """

    def __init__(
        self,
        runners: Mapping[str, EpisodeRunner],
        policy: TeacherPolicy,
        ledger: Ledger,
        directory: Path,
        at_once: int,
    ) -> None:
        self._ways = [(runner, Wording(profile(name))) for name, runner in runners.items()]
        self._ledger = ledger
        self._policy = policy
        self._directory = directory
        self._slots = asyncio.Semaphore(at_once)
        self.sessions = 0

    async def give(
        self, draw: Callable[[], Problem], lessons: int, demonstrations: int, rng: random.Random
    ) -> None:
        """Show `lessons` tasks, each of them `demonstrations` times."""
        await asyncio.gather(*(self._lesson(draw, demonstrations, rng) for _ in range(lessons)))

    async def _lesson(self, draw: Callable[[], Problem], demonstrations: int, rng: random.Random) -> None:
        async with self._slots:
            sessions = [new_id() for _ in range(demonstrations)]
            task = self._next(draw, sessions)
            for session_id, way in zip(sessions, cycle(self._ways), strict=False):
                await self._demonstrate(task, session_id, way, random.Random(rng.random()))

    def _next(self, draw: Callable[[], Problem], sessions: Sequence[str]) -> Task:
        """Return the next task that no stage has shown and that has a solution to show."""
        while True:
            problem = draw()
            if self._ledger.reserve(problem.key, Stage.LESSON, sessions):
                task = problem.provide(self._directory)
                if demonstrator(task, random.Random(0)) is not None:
                    return task

    async def _demonstrate(
        self, task: Task, session_id: str, way: tuple[EpisodeRunner, Wording], rng: random.Random
    ) -> None:
        teacher = demonstrator(task, rng)
        assert teacher is not None  # `_next` has passed over those without
        runner, dialect = way
        self._policy.take_charge(session_id, teacher, dialect)
        try:
            await runner.attempt(task, CardUser(task), source=Source.TEACHER, session_id=session_id)
        finally:
            self._policy.leave(session_id)
        self.sessions += 1
