"""The start of a run: a tokenizer of the practice text and a model with random weights."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import RunConfig
from ostinato.loop.run import START, Run
from ostinato.loop.stages.problems import stream
from ostinato.model.renderer import Renderer, skeletons
from ostinato.model.tokenizer import Tokenizer

CORPUS_TASKS = 800
BANNER = "\n=========================== short test summary info ============================\n"
"""The line that pytest prints above its failures."""


class PrepareError(RuntimeError):
    """The start checkpoint could not be made."""


async def prepare(config: RunConfig, run: Run) -> None:
    """Make the start checkpoint unless the run folder has it. Raises PrepareError."""
    directory = run.checkpoint(START)
    if (directory / "model.safetensors").exists():
        return
    shown = profile(config.harness.profile)
    words = skeletons(shown.system, shown.tools)
    tokenizer = Tokenizer.train(corpus(config), config.model.vocabulary, words)
    tokenizer.save(directory)
    model = replace(config.model.shape, vocab_size=tokenizer.vocab_size)
    await _create(directory, json.dumps(asdict(model)), config.seed, shown.hash)


def corpus(config: RunConfig) -> Iterator[str]:
    """Yield practice text: repositories, requests, edits, and what a test run prints of a failure."""
    problems, rng = stream(config, "corpus"), Random(config.seed)
    for _ in range(CORPUS_TASKS):
        pebble = next(problems)
        yield pebble.instruction
        yield from pebble.files.values()
        for change in pebble.changes:
            yield from (change.old, change.new)
        yield "".join([rng.choice("F.") for _ in pebble.functions] + [BANNER])
        for function in pebble.targets:
            got, wanted = rng.randrange(-3, 30), rng.randrange(30)
            yield f"FAILED test_{function.path}::test_{function.name} - assert {got} == {wanted}"


async def _create(directory: Path, model: str, seed: int, harness: str) -> None:
    """Make random weights in a child process, so that this one stays free of torch."""
    command = [sys.executable, "-m", "ostinato.model.create", str(directory), "--config", model]
    command += ["--seed", str(seed), "--harness", harness]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    if process.returncode:
        raise PrepareError(
            f"no model could be made in {directory}:\n{errors.decode(errors='replace')[-800:]}"
        )


def load_wire(directory: Path) -> tuple[Tokenizer, Renderer]:
    """Return the tokenizer of a checkpoint and its renderer."""
    tokenizer = Tokenizer.load(directory)
    return tokenizer, Renderer(tokenizer)
