"""A run with everything real but the model: a scripted policy stands behind the gateway."""

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.config import RunConfig, TeachConfig
from ostinato.loop.folder import open_run
from ostinato.loop.resources import RunResources, open_resources
from ostinato.loop.run import START, Run
from ostinato.loop.show import Show
from ostinato.loop.stages.prepare import load_wire, prepare
from ostinato.model.transcript import messages_of
from ostinato.sandbox.config import SandboxConfig
from ostinato.tasks.pebble import Pebble
from ostinato.tasks.teaching.habits import call
from ostinato.types import TEACHER_VERSION, Arm, GenerateRequest

STARTS: dict[tuple[str, ...], Path] = {}
"""A copy of the start checkpoint that a run of this process made, by its profiles. Each takes seconds."""
Mind = Callable[[str, int], str]
"""From a session's id and the number of its turns so far to the next assistant text."""


def solves(pebble: Pebble, session_id: str, turn: int) -> str:
    """Makes the right edits one by one, then says so."""
    if turn < len(pebble.changes):
        change = pebble.changes[turn]
        return call("edit", path=change.path, old_string=change.old, new_string=change.new)
    answer = f"{pebble.targets[0].name} uses {pebble.answer}"
    return answer if pebble.answer is not None else "done"


@asynccontextmanager
async def fake_resources(
    directory: Path, mind: Mind, arms: Sequence[str], profiles: tuple[str, ...] = ()
) -> AsyncIterator[RunResources]:
    """A resources whose `arms` are all served by `mind`; its tokenizer is made for `profiles`."""
    config = RunConfig(sandbox=SandboxConfig(backend="process"), teach=TeachConfig(profiles=profiles))
    shape = replace(config.model.shape, hidden_size=16, heads=1, kv_heads=1, head_dim=8)
    config = replace(config, model=replace(config.model, shape=shape))
    run = open_run(Run(directory=directory / "run"), config, fresh=False).run
    made = STARTS.setdefault(profiles, directory / "start")
    if not made.exists():
        await prepare(config, run)
        shutil.copytree(run.checkpoint(START), made)
    else:
        shutil.copytree(made, run.checkpoint(START))
    tokenizer, renderer = load_wire(run.checkpoint(START))

    async def policy(request: GenerateRequest) -> tuple[int, ...]:
        messages = messages_of(tokenizer.decode(request.prompt_ids))
        turn = sum(message["role"] == "assistant" for message in messages)
        return (*tokenizer.encode(mind(request.session_id, turn)), renderer.stop_ids[0])

    async with open_resources(config, run, Show(Console(quiet=True))) as resources:
        site = await serve_scripted(ScriptedEngine(policy))
        for name in arms:
            resources.put_arm(
                Arm(name=name, version=TEACHER_VERSION, share=float(name == arms[0]), engines=(site.url,))
            )
        yield resources
        await site.close()
