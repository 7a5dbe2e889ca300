"""Every stage that shows a task to a model reserves its key, so that no other stage shows it again; a lesson
that a failure of ours spoils is given again.

Covers demo/developers.py and loop/stages/teacher.py.
"""

from functools import partial
from pathlib import Path

import pytest
from tests.resources import fake_resources, solves

from ostinato.demo.developers import Office, seats
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.run import START
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.teacher import RETRIES, Lessons, TeacherPolicy
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Sandbox, SandboxError, Spec
from ostinato.store import Ledger, Phase, Stage
from ostinato.tasks.developers import population
from ostinato.tasks.pebble import generate, problem
from ostinato.types import TEACHER_VERSION, Arm, Source, State


async def test_a_developer_is_not_given_a_task_that_was_shown_before(tmp_path: Path) -> None:
    known, other = generate("fix", "train", 3), generate("fix", "train", 4)
    async with fake_resources(tmp_path, partial(solves, other), ["champion"]) as resources:
        ledger = Ledger(resources.store)
        ledger.reserve(known.key)
        drawn = iter([problem(known), problem(other)])
        office = Office(resources.runner(resources.client("simulator")), resources.store, tmp_path / "tasks")
        (episode,) = await office.work(seats(resources, population(1, 1)), lambda: next(drawn), 1)
        assert ledger.live_prompts([episode.session_id]) == {episode.session_id: (other.key, Phase.RESERVED)}
        assert not ledger.reserve(other.key)


async def test_a_lesson_is_not_given_on_a_task_that_was_shown_before(tmp_path: Path) -> None:
    known, other = generate("fix", "train", 3), generate("fix", "train", 4)
    async with fake_resources(tmp_path, lambda session_id, turn: "done", []) as resources:
        ledger = Ledger(resources.store)
        ledger.reserve(known.key, Stage.LIVE)
        _, renderer = load_wire(resources.run.checkpoint(START))
        policy = TeacherPolicy(renderer)
        site = await serve_scripted(ScriptedEngine(policy))
        resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
        lessons = Lessons(
            {"core": resources.runner(resources.client("teacher", "teacher"))},
            policy,
            ledger,
            tmp_path / "tasks",
            4,
        )
        drawn = iter([problem(known), problem(other)])
        await lessons.give(lambda: next(drawn), 1, 2, 0)
        await site.close()
        assert {s.task_id for s in resources.store.sessions(source=Source.TEACHER)} == {other.id}
        assert lessons.sessions == 2 and not ledger.reserve(other.key)


class Failing(ProcessBackend):
    """A backend that makes no sandbox so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def create(self, spec: Spec) -> Sandbox:
        self.times -= 1
        if self.times >= 0:
            raise SandboxError("timed out")
        return await super().create(spec)


async def test_a_lesson_that_a_failure_of_ours_spoils_is_given_again_or_left_out(tmp_path: Path) -> None:
    async with fake_resources(tmp_path, lambda session_id, turn: "done", []) as resources:
        resources.backend = backend = Failing(1)
        policy, ledger = TeacherPolicy(load_wire(resources.run.checkpoint(START))[1]), Ledger(resources.store)
        site = await serve_scripted(ScriptedEngine(policy))
        resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
        runner = resources.runner(resources.client("teacher", "teacher"))
        lessons = Lessons({"core": runner}, policy, ledger, tmp_path / "tasks", 1)
        drawn = iter([problem(generate("fix", "train", seed)) for seed in range(9)])
        await lessons.give(lambda: next(drawn), 1, 2, 0)
        assert (lessons.sessions, lessons.void, lessons.left_out) == (2, 1, 0)
        backend.times = 1 + RETRIES
        with pytest.raises(SandboxError, match=r"1 demonstrations stayed void .* at most 0 may be left out"):
            await lessons.give(lambda: next(drawn), 1, 1, 0)
        await site.close()
        shown = resources.store.sessions(source=Source.TEACHER)
        ledger.account_sessions([session.id for session in shown], State.TRAINED)
        assert len(ledger.lessons_read()) == 1, "the demonstration that was given again is one of its lesson"
