"""The first version: the trainer learns from the teacher's sessions while the teacher still gives them."""

import json
import random
from pathlib import Path
from typing import Any

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.measure import pebbles
from ostinato.loop.prepare import load_wire
from ostinato.loop.services import alongside, watch
from ostinato.loop.workshop import START, Workshop
from ostinato.rollout.teach import Lessons, TeacherPolicy
from ostinato.store.ledger import Ledger
from ostinato.types import TEACHER_VERSION, Arm, Source, State


async def teach(shop: Workshop) -> dict[str, Any]:
    """Runs lessons and supervised fine-tuning side by side; publishes version 0."""
    config, run = shop.config.teach, shop.run
    tokenizer, renderer = load_wire(run.checkpoint(START))
    policy = TeacherPolicy(tokenizer, renderer.stop_ids[0])
    site = await serve_scripted(ScriptedEngine(policy), secret=shop.services.secret)
    try:
        shop.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engine=site.url))
        runner, ledger = shop.runner(shop.client("teacher", "teacher")), Ledger(shop.store)
        lessons = Lessons(runner, policy, ledger, run.tasks / "lessons")
        trainer = await shop.services.start("sft", "ostinato.train.sft", _arguments(shop), keep=False)
        stream = pebbles("train", shop.config.seed * 1_000_000)
        given = lessons.give(
            lambda: next(stream), config.lessons, config.demonstrations, random.Random(shop.config.seed)
        )
        with shop.show.stage("teach", total=config.steps) as bar:

            def tick() -> None:
                step = last_line(run.directory / "sft" / "sft.jsonl")
                bar.at(step.get("step", 0), f"{lessons.sessions} lessons, loss {step.get('loss', 0):.3f}")

            async with alongside(given) as giving:
                await watch(trainer, tick, [giving])
        _account_unread(shop)
    finally:
        await site.close()
    return {"sessions": lessons.sessions}


def _account_unread(shop: Workshop) -> None:
    """Lessons that ended after the last step taught nobody."""
    given = shop.store.sessions(source=Source.TEACHER)
    ledger = Ledger(shop.store)
    ledger.account_sessions([session.id for session in given], State.STALE)
    ledger.close_out()


def _arguments(shop: Workshop) -> list[str]:
    run = shop.run
    return [
        *("--store", str(run.store_path), "--objects", str(run.objects_path)),
        *("--checkpoint", str(run.checkpoint(START)), "--out", str(run.checkpoint("taught"))),
        *("--run-dir", str(run.directory / "sft"), "--steps", str(shop.config.teach.steps)),
    ]


def last_line(path: Path) -> dict[str, Any]:
    """The last whole JSON line of a trainer's log; empty before there is one."""
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):  # nothing yet, or the trainer is in the middle of writing
        return {}
    return found
