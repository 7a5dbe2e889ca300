"""`ostinato dashboard`: the record in a browser."""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DONE = 0
EXTRA = "the dashboard needs its extra: pip install 'ostinato[dashboard]'"


class MissingExtraError(Exception):
    """A library of the extra `dashboard` is not installed."""


def register(commands: Any) -> None:
    """Add `dashboard` to the subparsers of `ostinato`."""
    parser = commands.add_parser("dashboard", help="see sessions, versions and verdicts in a browser")
    parser.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    parser.add_argument("--store", default=None, help="SQLite file or database URL, instead of a run folder")
    parser.add_argument(
        "--checkpoint", type=Path, default=None, help="a folder with the tokenizer of the record's tokens"
    )
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="another run folder, whose training is drawn over this one's",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine alone)"
    )
    parser.add_argument("--port", type=int, default=8095, help="0 takes a free one")
    parser.add_argument(
        "--allow-host", action="append", default=[], help="name under which a proxy passes requests on"
    )
    parser.add_argument("--json", action="store_true", help="print the address as JSON")
    parser.set_defaults(run=_dashboard, interrupted="")


def _dashboard(options: argparse.Namespace) -> int:
    if find_spec("jinja2") is None:
        raise MissingExtraError(EXTRA)
    from ostinato.dashboard.server import open_reading, serve
    from ostinato.loop.seen.link import link_of

    store = options.store or str(options.directory / "store.db")
    checkpoint = options.checkpoint
    if checkpoint is None and options.store is None:
        start = options.directory / "checkpoints" / "start"
        checkpoint = start if (start / "tokenizer.json").exists() else None
    directory = options.directory if options.store is None else None
    reading = open_reading(
        store, checkpoint, directory=directory, loop=link_of(directory), beside=options.beside
    )

    def say(address: str) -> None:
        line = json.dumps({"ready": True, "address": address}) if options.json else f"dashboard: {address}"
        print(line, flush=True)  # noqa: T201

    serve(reading, options.host, options.port, tuple(options.allow_host), say)
    return DONE
