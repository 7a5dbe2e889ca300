"""The first version: a teacher gives its lessons, then the trainer learns from all of them.

One follows the other, so that what is learnt does not depend on which lesson ends first.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

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
from ostinato.tasks.source import Problem
from ostinato.train.config import Budget, SftProcess
from ostinato.types import TEACHER_VERSION, Arm, Ending, Source, State


async def teach(resources: RunResources) -> Taught:
    """Give the lessons, and fine-tune the first weights on them; version 0 is published."""
    taught = await resources.stage("teach/lessons", Taught, lambda: _give(resources))
    await fine_tune(resources)
    account_unread(resources)
    return taught


async def fine_tune(resources: RunResources, chosen: Path | None = None) -> None:
    """Fine-tune the first weights on the lessons, or on the sessions that a file names; publish version 0."""
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
        chosen=chosen,
    )
    with resources.show.stage("fine-tuning", total=settings.steps) as bar:

        def tick() -> None:
            step = last_line(run.directory / "sft" / "sft.jsonl")
            bar.at(step.get("step", 0), f"loss {step.get('loss', 0):.3f}")

        await resources.train("sft", "ostinato.train.sft", trainer_settings, tick)


async def _give(resources: RunResources) -> Taught:
    """Give the lessons that the run's settings ask for."""
    config, settings = resources.config, resources.config.teach
    problems, shown = stream(config, "lessons"), (settings.lessons, settings.demonstrations)
    return await give(resources, lambda: next(problems), *shown, taught_profiles(config))


async def give(
    resources: RunResources,
    draw: Callable[[], Problem],
    tasks: int,
    demonstrations: int,
    profiles: Sequence[str],
    *,
    examined: bool = False,
) -> Taught:
    """Let the scripted teacher stand where an engine stands, and show so many tasks that `draw` gives.

    Each is shown `demonstrations` times, under each profile in turn; `examined` also runs its hidden tests.
    """
    config, settings, run = resources.config, resources.config.teach, resources.run
    _, renderer = load_wire(run.checkpoint(START))
    policy = TeacherPolicy(renderer)
    site = await serve_scripted(
        ScriptedEngine(policy), resources.services.here, secret=resources.services.secret
    )
    try:
        resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
        client = resources.client("teacher", "teacher")
        runners = {name: resources.runner(client, name) for name in profiles}
        lessons = Lessons(
            runners,
            policy,
            Ledger(resources.store),
            run.tasks / "lessons",
            settings.at_once,
            examined=resources.store if examined else None,
        )
        with resources.show.stage("lessons", total=tasks * demonstrations) as bar:
            await lessons.give(draw, tasks, demonstrations, config.seed, bar.more)
    finally:
        await site.close()
    return Taught(sessions=lessons.sessions, void=lessons.void, left_out=lessons.left_out)


def account_unread(resources: RunResources) -> None:
    """Account the lessons from which nothing was learnt, because there were few steps, and those cut off."""
    sessions, ledger = resources.store.sessions(source=Source.TEACHER), Ledger(resources.store)
    whole = {session.id for session in sessions if session.ending not in {None, Ending.INFRASTRUCTURE}}
    ledger.account_sessions(sorted(whole), State.STALE)
    ledger.account_sessions([session.id for session in sessions if session.id not in whole], State.VOID)
    ledger.close_out()
