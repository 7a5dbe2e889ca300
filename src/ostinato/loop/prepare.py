"""The start of a run: a tokenizer of the practice text and a model with random weights."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import DemoConfig
from ostinato.loop.measure import pebbles
from ostinato.loop.run import Run
from ostinato.loop.workshop import START
from ostinato.model.renderer import Renderer, skeletons
from ostinato.model.tokenizer import Tokenizer

CORPUS_TASKS = 800
BANNER = "\n=========================== short test summary info ============================\n"
"""What pytest prints above its failures."""


class PrepareError(RuntimeError):
    """The start checkpoint could not be made."""


async def prepare(config: DemoConfig, run: Run) -> None:
    """Makes the start checkpoint unless the run folder has it."""
    directory = run.checkpoint(START)
    if (directory / "model.safetensors").exists():
        return
    told = profile(config.harness.profile)
    words = skeletons(told.system, told.tools)
    tokenizer = Tokenizer.train(corpus(config.seed), config.vocabulary, words)
    tokenizer.save(directory)
    model = replace(config.model, vocab_size=tokenizer.vocab_size)
    await _create(directory, json.dumps(asdict(model)), config.seed, told.hash)


def corpus(seed: int) -> Iterator[str]:
    """Practice text: repositories, requests, edits, and what a test run prints of a failure."""
    stream, rng = pebbles("train", seed * 1_000_000 + 900_000), Random(seed)
    for _ in range(CORPUS_TASKS):
        pebble = next(stream)
        yield pebble.instruction
        yield from pebble.files.values()
        for change in pebble.changes:
            yield from (change.old, change.new)
        yield "".join([rng.choice("F.") for _ in pebble.functions] + [BANNER])
        for function in pebble.targets:
            got, wanted = rng.randrange(-3, 30), rng.randrange(30)
            yield f"FAILED test_{function.path}::test_{function.name} - assert {got} == {wanted}"


async def _create(directory: Path, model: str, seed: int, harness: str) -> None:
    """Random weights, made in a process of their own: this one stays free of torch."""
    command = [sys.executable, "-m", "ostinato.model.create", str(directory), "--config", model]
    command += ["--seed", str(seed), "--harness", harness]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    if process.returncode:
        raise PrepareError(
            f"no model could be made in {directory}:\n{errors.decode(errors='replace')[-800:]}"
        )


def load_wire(directory: Path) -> tuple[Tokenizer, Renderer]:
    """The tokenizer of a checkpoint and its renderer."""
    tokenizer = Tokenizer.load(directory)
    return tokenizer, Renderer(tokenizer)
