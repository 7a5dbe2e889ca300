"""The start of a run: somebody's checkpoint, or a tokenizer of the practice text and random weights."""

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from ostinato import extras
from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import RunConfig, taught_profiles
from ostinato.loop.hub import ModelMissingError, find_model
from ostinato.loop.resources import engine_settings
from ostinato.loop.run import START, Run
from ostinato.loop.stages.dialect import literals
from ostinato.loop.stages.problems import corpus
from ostinato.model.config import META, ModelConfig, ModelConfigError
from ostinato.model.families import Renderer, RenderError, load_renderer
from ostinato.model.tokenizer import Tokenizer, TokenizerError

WEIGHTS = ".safetensors"
COMPANIONS = {".json", ".jinja", ".txt", ".model"}
"""The endings of the files beside the weights: configuration, tokenizer, chat template."""


class PrepareError(RuntimeError):
    """There is no start checkpoint, or the one that is named cannot be used."""


def check_start(config: RunConfig, named: str = "model.path") -> None:
    """Raise PrepareError when the engine cannot be had, or the checkpoint not used; change nothing.

    `named` is the setting that the checkpoint was given by.
    Raises MissingPackageError where a package is missing that every run needs.
    """
    for module in ("torch", "safetensors", "pytest", "jinja2"):
        extras.need(module, "a run", "demo")
    _check_engine(config)
    if config.model.path is None:
        return
    path = _located(config.model.path, named)
    if missing := [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]:
        raise PrepareError(f"{named} is {path}, which is no checkpoint: {missing[0]} is missing")
    try:
        if missing := [name for name in _shards(path) if not (path / name).is_file()]:
            raise PrepareError(f"{named} is {path}, whose weights are not whole: {missing[0]} is missing")
        load_wire(path)
        ModelConfig.from_hf(json.loads((path / "config.json").read_text()))
    except (RenderError, TokenizerError, ModelConfigError, OSError, ValueError, KeyError) as error:
        raise PrepareError(f"{named} is {path}, which cannot be used: {error}") from error


def _located(path: Path, named: str = "model.path") -> Path:
    """Return the directory of a checkpoint, which comes from the hub where its name is of a repository."""
    if path.suffix == ".gguf":
        raise PrepareError(f"{named} is {path}: first make a directory of it, `ostinato weights import`")
    try:
        return find_model(str(path))
    except ModelMissingError as error:
        raise PrepareError(f"{named} is {path}, which is no checkpoint: {error}") from error


def _check_engine(config: RunConfig) -> None:
    try:
        for url in config.engine.url or [None]:
            engine_settings(config, Run(directory=Path()), version=0, url=url)
    except ValueError as error:
        raise PrepareError(f"[engine]: {error}") from error
    if config.engine.backend != "vllm":
        return
    python = config.engine.python or sys.executable
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        lacks = subprocess.run([python, "-c", code], check=False, capture_output=True).returncode != 0
    except OSError as error:
        raise PrepareError(f"engine.python is {python}, which cannot be run: {error.strerror}") from error
    if lacks:
        raise PrepareError(
            f"engine.backend is vllm, and {python} has no vLLM: install it there, let engine.python name "
            "another interpreter, or take engine.backend=embedded"
        )


def _shards(path: Path) -> list[str]:
    """Return the names of the files that the weights of a checkpoint lie in."""
    index = path / f"model{WEIGHTS}.index.json"
    if not index.exists():
        return [f"model{WEIGHTS}"]
    return sorted(set(json.loads(index.read_text())["weight_map"].values()))


async def prepare(config: RunConfig, run: Run) -> None:
    """Make the start checkpoint unless the run folder has it. Raises PrepareError."""
    directory = run.checkpoint(START)
    if config.model.path is None:
        await _make(config, directory)
    else:
        _adopt(config.model.path, directory)


def _adopt(path: Path, directory: Path) -> None:
    """Copy the small files of a checkpoint and link its weights, which are never changed.

    Whatever version of another run it was, it is version 0 of this one.
    """
    if directory.exists():
        return
    path = _located(path).resolve()
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file in path.iterdir():
        if file.suffix == WEIGHTS:
            (part / file.name).symlink_to(file.resolve())  # the hub's cache holds links itself
        elif file.suffix in COMPANIONS:
            shutil.copyfile(file, part / file.name)
    lineage = part / META
    if lineage.exists():
        first = json.loads(lineage.read_text()) | {"version": 0, "parent": None}
        lineage.write_text(json.dumps(first) + "\n")
    part.rename(directory)


async def _make(config: RunConfig, directory: Path) -> None:
    if (directory / "model.safetensors").exists():
        return
    shown = profile(config.harness.profile)
    words = [word for name in taught_profiles(config) for word in literals(profile(name))]
    tokenizer = Tokenizer.train(corpus(config), config.model.vocabulary, words)
    tokenizer.save(directory)
    model = replace(config.model.shape, vocab_size=tokenizer.vocab_size)
    await _create(directory, json.dumps(asdict(model)), config.seed, shown.hash)


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
    renderer = load_renderer(directory)
    return renderer.tokenizer, renderer
