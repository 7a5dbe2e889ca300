"""The first version: the trainer learns from the teacher's sessions while the teacher still gives them."""

import random

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.config import taught_profiles
from ostinato.loop.resources import RunResources
from ostinato.loop.results import Taught
from ostinato.loop.run import START
from ostinato.loop.services import watch
from ostinato.loop.stages.alongside import alongside
from ostinato.loop.stages.learn import last_line
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.problems import stream
from ostinato.loop.stages.teacher import Lessons, TeacherPolicy
from ostinato.store.ledger.ledger import Ledger
from ostinato.train.config import Budget, SftProcess
from ostinato.types import TEACHER_VERSION, Arm, Ending, Source, State


async def teach(resources: RunResources) -> Taught:
    """Run lessons and supervised fine-tuning side by side; version 0 is published."""
    config, settings, run = resources.config, resources.config.teach, resources.run
    trainer_settings = SftProcess(
        store=run.store,
        objects=run.objects,
        checkpoint=run.checkpoint(START),
        out=run.checkpoint("taught"),
        run_dir=run.directory / "sft",
        budget=Budget(steps=settings.steps),
        sft=settings.sft,
        trainer=config.trainer,
    )
    _, renderer = load_wire(run.checkpoint(START))
    policy = TeacherPolicy(renderer)
    site = await serve_scripted(
        ScriptedEngine(policy), resources.services.here, secret=resources.services.secret
    )
    try:
        resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
        client, ledger = resources.client("teacher", "teacher"), Ledger(resources.store)
        runners = {name: resources.runner(client, name) for name in taught_profiles(config)}
        lessons = Lessons(runners, policy, ledger, run.tasks / "lessons", settings.at_once)
        trainer = await resources.services.start("sft", "ostinato.train.sft", trainer_settings, keep=False)
        problems, rng = stream(config, "lessons"), random.Random(config.seed)
        teaching = lessons.give(lambda: next(problems), settings.lessons, settings.demonstrations, rng)
        with resources.show.stage("teach", total=settings.steps) as bar:

            def tick() -> None:
                step = last_line(run.directory / "sft" / "sft.jsonl")
                bar.at(step.get("step", 0), f"{lessons.sessions} lessons, loss {step.get('loss', 0):.3f}")

            async with alongside(teaching) as task:
                await watch(trainer, tick, [task])
        _account_unread(resources)
    finally:
        await site.close()
    return Taught(sessions=lessons.sessions, void=lessons.void, left_out=lessons.left_out)


def _account_unread(resources: RunResources) -> None:
    """Account lessons that ended after the last step, from which nothing was learnt, and those cut off."""
    sessions, ledger = resources.store.sessions(source=Source.TEACHER), Ledger(resources.store)
    whole = {session.id for session in sessions if session.ending not in {None, Ending.INFRASTRUCTURE}}
    ledger.account_sessions(sorted(whole), State.STALE)
    ledger.account_sessions([session.id for session in sessions if session.id not in whole], State.VOID)
    ledger.close_out()
