"""The first version: a teacher gives its lessons, then the trainer learns from all of them.

One follows the other, so that what is learnt does not depend on which lesson ends first.
"""

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.config import taught_profiles
from ostinato.loop.resources import RunResources
from ostinato.loop.results import Taught
from ostinato.loop.run import START
from ostinato.loop.stages.learn import last_line
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.problems import stream
from ostinato.loop.stages.teacher import Lessons, TeacherPolicy
from ostinato.store.ledger.ledger import Ledger
from ostinato.train.config import Budget, SftProcess
from ostinato.types import TEACHER_VERSION, Arm, Ending, Source, State


async def teach(resources: RunResources) -> Taught:
    """Give the lessons, and fine-tune the first weights on them; version 0 is published."""
    config, settings, run = resources.config, resources.config.teach, resources.run
    taught = await resources.stage("teach/lessons", Taught, lambda: _give(resources))
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
    with resources.show.stage("fine-tuning", total=settings.steps) as bar:

        def tick() -> None:
            step = last_line(run.directory / "sft" / "sft.jsonl")
            bar.at(step.get("step", 0), f"loss {step.get('loss', 0):.3f}")

        await resources.train("sft", "ostinato.train.sft", trainer_settings, tick)
    _account_unread(resources)
    return taught


async def _give(resources: RunResources) -> Taught:
    """Let the scripted teacher stand where an engine stands, and give all its lessons."""
    config, settings, run = resources.config, resources.config.teach, resources.run
    _, renderer = load_wire(run.checkpoint(START))
    policy = TeacherPolicy(renderer)
    site = await serve_scripted(
        ScriptedEngine(policy), resources.services.here, secret=resources.services.secret
    )
    try:
        resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
        client, problems = resources.client("teacher", "teacher"), stream(config, "lessons")
        runners = {name: resources.runner(client, name) for name in taught_profiles(config)}
        lessons = Lessons(runners, policy, Ledger(resources.store), run.tasks / "lessons", settings.at_once)
        with resources.show.stage("lessons", total=settings.lessons * settings.demonstrations) as bar:
            shown = settings.lessons, settings.demonstrations
            await lessons.give(lambda: next(problems), *shown, config.seed, bar.more)
    finally:
        await site.close()
    return Taught(sessions=lessons.sessions, void=lessons.void, left_out=lessons.left_out)


def _account_unread(resources: RunResources) -> None:
    """Account the lessons from which nothing was learnt, because there were few steps, and those cut off."""
    sessions, ledger = resources.store.sessions(source=Source.TEACHER), Ledger(resources.store)
    whole = {session.id for session in sessions if session.ending not in {None, Ending.INFRASTRUCTURE}}
    ledger.account_sessions(sorted(whole), State.STALE)
    ledger.account_sessions([session.id for session in sessions if session.id not in whole], State.VOID)
    ledger.close_out()
