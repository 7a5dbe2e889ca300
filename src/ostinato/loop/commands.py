"""`ostinato serve`: a run's version, a checkpoint, or a vLLM that is there; and `ostinato lineage`."""

import argparse
import asyncio
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ostinato import extras
from ostinato.deploy.lineage import lineage, tree, version_meant
from ostinato.store.commands import FOLDER_HELP, add_record
from ostinato.store.config import meant_folder, meant_record
from ostinato.web.port import port, root_of

if TYPE_CHECKING:
    from ostinato.loop.serving.serve_model import ServeModelConfig

OF_AN_ENGINE_HERE = {
    "objects": "--objects",
    "slots": "--slots",
    "context": "--context",
    "backend": "--backend",
    "dtype": "--dtype",
    "tensor_parallel": "--tensor-parallel",
    "arguments": "--argument",
    "python": "--python",
    "draft": "--draft",
}
"""The settings of an engine that `ostinato serve --model` starts, and their flags."""
OF_A_MODEL = {
    "engines": "--engine",
    "store": "--store",
    "version": "--version",
    **OF_AN_ENGINE_HERE,
}
"""The settings of `ostinato serve --model`, and their flags; without --model they have no effect."""


class ServeCommandError(Exception):
    """What is asked for cannot be served."""


def register(commands: Any) -> None:
    """Add `serve` and `lineage` to the subparsers of `ostinato`."""
    parser = commands.add_parser("lineage")
    parser.add_argument("version", help="the number of the version, or the beginning of its digest")
    add_record(parser)
    parser.set_defaults(run=_lineage)
    serve = commands.add_parser("serve")
    serve.add_argument("--directory", type=Path, help=f"{FOLDER_HELP}; with --model: runs/serve")
    serve.add_argument("--host", help="address of the gateway (default: the run's live.host, or 127.0.0.1)")
    serve.add_argument(
        "--port", type=port, help="port of the gateway (default: the run's live.port, or 8080)"
    )
    serve.add_argument("--alias", action="append", default=[], help="another name, as 'claude-*'")
    model = serve.add_argument_group("a model, without a run")
    model.add_argument("--model", help="directory in Hugging Face layout, or a name on the hub")
    model.add_argument(
        "--engine", dest="engines", action="append", metavar="URL", help="a vLLM that serves --model already"
    )
    model.add_argument("--store", help="SQLite file or database URL of the record")
    model.add_argument("--objects", help="object store whose newest version is served, and each that follows")
    model.add_argument(
        "--version", type=int, help="number that an --engine's turns are recorded under (default: 0)"
    )
    model.add_argument("--slots", type=int, help="sequences sampled at once (default: 16)")
    model.add_argument(
        "--context",
        type=int,
        help="tokens of prompt and completion (default: 4096, or the model's positions)",
    )
    model.add_argument("--backend", choices=["auto", "embedded", "vllm"], help="(default: auto)")
    model.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], help="(default: auto)")
    model.add_argument("--tensor-parallel", type=int, help="vLLM's workers for each layer (default: 1)")
    model.add_argument(
        "--argument",
        dest="arguments",
        action="append",
        metavar="ARGUMENT",
        help="for vLLM, as --argument=--swap-space=4",
    )
    model.add_argument("--python", help="interpreter that has vLLM")
    model.add_argument(
        "--draft",
        choices=["auto", "suffix", "mtp", "none"],
        help="draft what followed the same tokens before, with mtp also what an MTP layer foretells; auto: "
        "in the embedded engine (default: auto)",
    )
    serve.set_defaults(run=_serve, interrupted="stopped: the engine and the gateway have ended")


def _serve(options: argparse.Namespace) -> int:
    console = Console(highlight=False, markup=False)
    given = {name: value for name in OF_A_MODEL if (value := getattr(options, name)) is not None}
    if complaint := _without_effect(options.model, given):
        raise ServeCommandError(complaint)
    extras.need("torch", "an engine server")  # also one before a vLLM that is there
    if options.model is None:
        from ostinato.loop.serving.serve import serve

        where = meant_folder(options.directory)
        return asyncio.run(serve(where, options.host, options.port, options.alias, console))
    from ostinato.loop.serving.serve_model import serve_model

    return asyncio.run(serve_model(_of_model(options, given), console))


def _of_model(options: argparse.Namespace, given: dict[str, Any]) -> "ServeModelConfig":
    """Return what is served without a run; `given` are those of OF_A_MODEL that a person typed."""
    from ostinato.loop.hub import find_model
    from ostinato.loop.serving.serve_model import ServeModelConfig
    from ostinato.model.config import positions_of

    lists = {name: tuple(given.get(name, ())) for name in ("engines", "arguments")}
    where = {name: at for name in ("host", "port") if (at := getattr(options, name)) is not None}
    config = ServeModelConfig(
        model=options.model,
        **where,
        directory=options.directory or Path("runs/serve"),
        engines=tuple(map(root_of, lists["engines"])),
        aliases=tuple(options.alias),
        arguments=lists["arguments"],
        **{name: value for name, value in given.items() if name not in lists},
    )
    if config.engines or "context" in given:
        return config
    # The default is no wish of anybody's, so a model of fewer positions is served with those it has.
    positions = positions_of(find_model(config.model))
    return replace(config, context=min(config.context, positions or config.context))


def _without_effect(model: str | None, given: Mapping[str, Any]) -> str | None:
    """Return the complaint about flags that nothing would read; None where all of them have an effect."""
    if model is None:
        idle, why = set(given), "without --model, the checkpoint that is served"
    elif "engines" in given:
        idle = given.keys() & OF_AN_ENGINE_HERE.keys()
        why = "beside --engine: they are of an engine that is started here"
    else:
        idle, why = given.keys() & {"version"}, "without --engine: a checkpoint knows its version"
    flags = [OF_A_MODEL[name] for name in OF_A_MODEL if name in idle]
    return f"{', '.join(flags)}: no effect {why}" if flags else None


def _lineage(options: argparse.Namespace) -> int:
    from ostinato.store import Store
    from ostinato.store.abbreviation import abbreviated

    with closing(Store.open(meant_record(options.directory, options.store).place)) as store:
        ancestors = lineage(store, version_meant(store, options.version))
        text = tree(ancestors, short=partial(abbreviated, store))
    Console(highlight=False, markup=False, soft_wrap=True, emoji=False).print(text)
    return 0
