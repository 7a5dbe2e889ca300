"""A real gateway process in front of a scripted model."""

import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ostinato.engine.base import PromptTooLongError
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.harness.profiles.prompt import SYSTEM
from ostinato.harness.tools.definitions import TOOLS
from ostinato.model.families import HermesRenderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Abilities, Arm, GenerateRequest

TOO_LONG = "(the model cannot read that much)"
"""In a script: the engine refuses the prompt."""


@asynccontextmanager
async def scripted_gateway(
    directory: Path, store: Store, script: list[str], *, tokens_a_second: float = math.inf, context: int = 0
) -> AsyncIterator[str]:
    """Address of a gateway whose model says the script, line by line, and never answers when it is over.

    `store` is the one that lies in `directory`; the model streams so many tokens a second,
    and reads `context` of them, or does not say so.
    """
    tokenizer = Tokenizer.train(["def alpha(a, b): return a - b"], 400, skeletons(SYSTEM, TOOLS))
    tokenizer.save(directory / "checkpoint")
    renderer = HermesRenderer(tokenizer)

    async def policy(request: GenerateRequest) -> tuple[int, ...]:
        if not script:
            await asyncio.Event().wait()
        said = script.pop(0)
        if said == TOO_LONG:
            raise PromptTooLongError("a prompt of 760 tokens leaves no room in 768")
        return (*tokenizer.encode(said), renderer.stop_ids[0])

    engine = await serve_scripted(
        ScriptedEngine(policy, Abilities(context=context), tokens_a_second=tokens_a_second)
    )
    store.set_arms([Arm(name="main", version=1, share=1.0, engines=(engine.url,))])
    command = [sys.executable, "-m", "ostinato.gateway.server", "--store", str(directory / "store.db")]
    command += ["--checkpoint", str(directory / "checkpoint")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    finally:
        process.kill()
        await process.wait()
        await engine.close()
