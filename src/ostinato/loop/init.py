"""`ostinato init`: a commented file for `ostinato run`, with settings that suit this machine and model."""

import argparse
import asyncio
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.engine.choose import EngineChoice

DONE = 0
SLOTS_ON_A_GPU, SLOTS_A_CORE = 64, 8
"""The sequences that an engine decodes at once: on a GPU, and for each core without one."""
LONGEST_CONTEXT = 4096
TEMPLATE = """\
# A run of ostinato: `ostinato run {file}`, which goes on where it was stopped.
# Written by `ostinato init` on a machine with {machine}.
# Every setting: docs/reference/settings.md. An unknown key is refused.
seed = 1

[sandbox]
backend = "{sandbox}"            # where the agent's commands run: {isolation}

[model]
{model}

[engine]
backend = "{backend}"            # {backend_reason}
dtype = "{dtype}"                # {dtype_reason}
slots = {slots}                  # sequences decoded at once
context = {context}              # tokens of prompt and completion together

[tasks]                          # pebbles, tiny repositories; practice sees the split `train` alone
held_out = {{seeds = 96, names = 24, pairs = 24, larger = 24, families = 24}}

[harness]
profile = "{profile}"            # the prompt and the tools that the model is shown
max_context = {max_context}      # no turn begins beyond it
max_tokens = {max_tokens}        # of one completion

[teach]                          # a scripted teacher's lessons, and fine-tuning on them
lessons = 400
demonstrations = 2
steps = 600

[practice]                       # groups of sessions on one task each
group_size = 8
groups_at_once = 4
ready_ahead = 8

[refine]                         # the policy gradient on those groups
versions = 16
groups = 4
learning_rate = {learning_rate}

[bench]
passes = 2

[live]
developers = 20                  # simulated; "people" learns from what `ostinato serve` recorded here
sessions = 80
ab_sessions = 200

[schedule]                       # stages may be added later: the folder goes on with them
stages = ["teach", "before", "practice", "after"]   # and then "cycle"
cycles = 1
"""


class InitError(ValueError):
    """No file can be written for this model or this machine."""


def register(commands: Any) -> None:
    """Add `init` to the subparsers of `ostinato`."""
    parser = commands.add_parser("init")
    parser.add_argument("file", type=Path, nargs="?", default=Path("run.toml"), help="the file to write")
    parser.add_argument(
        "--model",
        type=Path,
        default=None,
        metavar="PATH",
        help="a checkpoint (default: a tiny model)",
    )
    parser.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    text = asyncio.run(settings_file(options.file, options.model))
    try:
        with options.file.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise InitError(f"{options.file} is there already: name another file") from None
    print(f"{options.file} is written; read it, then: ostinato run {options.file}")  # noqa: T201
    return DONE


async def settings_file(file: Path, model: Path | None) -> str:
    """Return the text of a file of settings. Raises PrepareError for a model that is no usable checkpoint."""
    from ostinato.config import read
    from ostinato.engine.machine import gpus, precision_here
    from ostinato.loop.config import RunConfig
    from ostinato.loop.stages.prepare import check_start
    from ostinato.sandbox.choose import choose_backend

    if model is not None:
        check_start(read(RunConfig, {"model": {"path": str(model)}}, str(file)))
    sandbox = await choose_backend()
    isolation = sandbox.capabilities.isolation
    await sandbox.aclose()
    accelerators, precision = gpus(), precision_here()
    context = 768 if model is None else min(LONGEST_CONTEXT, _positions(model))
    cores = os.cpu_count() or 1
    engine = _engine(model)
    return TEMPLATE.format(
        file=file,
        machine=f"{cores} cores, {_memory_gib():.0f} GiB, {len(accelerators) or 'no'} GPU",
        sandbox=sandbox.name,
        isolation=isolation,
        model=_model(model),
        backend=engine.backend,
        backend_reason=engine.reason,
        dtype=precision.dtype if engine.backend == "vllm" else "float32",
        dtype_reason=precision.reason if engine.backend == "vllm" else "the embedded engine has no other",
        slots=SLOTS_ON_A_GPU if accelerators else SLOTS_A_CORE * cores,
        context=context,
        profile="core" if model is None else "short",
        max_context=context - context // 4,
        max_tokens=64 if model is None else 128,
        learning_rate="4e-4" if model is None else "1e-5",
    )


def _model(path: Path | None) -> str:
    if path is None:
        return "vocabulary = 512                 # random weights; give `path` a checkpoint directory instead"
    return f"path = {json.dumps(str(path.resolve()))}    # Hugging Face layout"


def _engine(model: Path | None) -> "EngineChoice":
    """Return what the engine's own `auto` chooses here."""
    from ostinato.engine.choose import choose_engine
    from ostinato.engine.machine import free_bytes, gpus
    from ostinato.loop.config import StartConfig
    from ostinato.model.config import ModelConfig

    shape = StartConfig().shape
    if model is not None:
        shape = ModelConfig.from_hf(json.loads((model / "config.json").read_text()))
    installed = find_spec("vllm") is not None
    return choose_engine(shape, gpu=bool(gpus()), free_bytes=free_bytes(), vllm=installed)


def _positions(model: Path) -> int:
    config = json.loads((model / "config.json").read_text())
    return int(config["max_position_embeddings"])


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
