"""`ostinato dashboard`: the record in a browser; and `ostinato report`: a run as one file."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ostinato import extras

DONE = 0
DASHBOARD = "the dashboard"


def register(commands: Any) -> None:
    """Add `dashboard` to the subparsers of `ostinato`."""
    parser = commands.add_parser("dashboard")
    parser.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    parser.add_argument("--store", default=None, help="SQLite file or database URL, instead of a run folder")
    parser.add_argument(
        "--checkpoint", type=Path, default=None, help="a folder with the tokenizer of the record's tokens"
    )
    _add_beside(parser)
    parser.add_argument(
        "--region",
        action="append",
        default=[],
        type=_region,
        metavar="NAME=URL",
        help="the object store of a region, whose lag behind the record is shown",
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
    told = commands.add_parser("report")
    told.add_argument("directory", type=Path, metavar="RUN", help="the run folder")
    told.add_argument("--out", type=Path, default=None, help="the file (default: report.html in the folder)")
    _add_beside(told)
    told.set_defaults(run=_report, interrupted="")


def _add_beside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="another run folder, whose training is drawn over this one's",
    )


def _region(text: str) -> tuple[str, str]:
    name, _, objects = text.partition("=")
    if not (name and objects):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL")
    return name, objects


def _dashboard(options: argparse.Namespace) -> int:
    extras.need("jinja2", DASHBOARD)
    from ostinato.dashboard.reading.base import RegionCopy
    from ostinato.dashboard.server import open_reading, serve
    from ostinato.loop.dashboard.link import link_of
    from ostinato.store.config import record_of

    store = options.store or record_of(options.directory)
    checkpoint = options.checkpoint
    if checkpoint is None and options.store is None:
        start = options.directory / "checkpoints" / "start"
        checkpoint = start if (start / "tokenizer.json").exists() else None
    directory = options.directory if options.store is None else None
    reading = open_reading(
        store,
        checkpoint,
        directory=directory,
        loop=link_of(directory),
        beside=options.beside,
        regions=[RegionCopy(name=name, objects=objects) for name, objects in options.region],
    )

    def say(address: str) -> None:
        line = json.dumps({"ready": True, "address": address}) if options.json else f"dashboard: {address}"
        print(line, flush=True)  # noqa: T201

    serve(reading, options.host, options.port, tuple(options.allow_host), say)
    return DONE


def _report(options: argparse.Namespace) -> int:
    path = options.out or options.directory / "report.html"
    write(options.directory, path, beside=options.beside)
    print(path)  # noqa: T201
    return DONE


def write(directory: Path, path: Path, *, beside: Sequence[Path] = (), caveat: str = "") -> None:
    """Write the report of a run folder to a file.

    Raises MissingPackageError and what `open_reading` raises.
    """
    extras.need("jinja2", DASHBOARD)
    from ostinato.dashboard.report import write_report
    from ostinato.dashboard.server import open_reading
    from ostinato.loop.dashboard.link import link_of
    from ostinato.store.config import record_of

    store = record_of(directory)
    reading = open_reading(store, None, directory=directory, loop=link_of(directory), beside=beside)
    try:
        write_report(reading, path, caveat=caveat)
    finally:
        reading.close()
