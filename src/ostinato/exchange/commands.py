"""`ostinato export` writes recorded sessions for other trainers; `ostinato import` reads those of others."""

import argparse
import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.store.commands import add_record
from ostinato.types import Source

if TYPE_CHECKING:
    from ostinato.exchange.record import Chosen

DONE = 0
CHECKPOINT = "a folder with the record's tokenizer.json and chat template (default: that of the run folder)"


def register(commands: Any) -> None:
    """Add `export` and `import` to the subparsers of `ostinato`."""
    made = commands.add_parser("export")
    made.add_argument("out", type=Path, metavar="DIR", help="the new folder of the data set")
    made.add_argument(
        "--format",
        default="jsonl",
        help="jsonl (chat rows), tokens (as sampled, with log-probabilities), or an exporter: atif, mini, …",
    )
    made.add_argument("--source", choices=list(Source), help="sessions of this source (default: of all)")
    made.add_argument("--arm", help="sessions of this arm")
    made.add_argument("--user", help="sessions of this person")
    made.add_argument("--since", type=_moment, metavar="DATE", help="sessions that began since then, in UTC")
    made.add_argument("--reward", type=float, help="sessions whose last reward is at least this")
    made.add_argument(
        "--unconsented", action="store_true", help="also what must not be trained on, for your own eyes"
    )
    _common(made, "what was made")
    made.set_defaults(run=_export)


def _common(parser: argparse.ArgumentParser, what: str) -> None:
    add_record(parser)
    parser.add_argument("--checkpoint", type=Path, default=None, metavar="DIR", help=CHECKPOINT)
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON")


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date: write 2026-11-29") from None


def _export(options: argparse.Namespace) -> int:
    from ostinato.exchange.conversations import checkpoint_of
    from ostinato.exchange.dataset import Selection, export
    from ostinato.exchange.record import OpenRecord
    from ostinato.model.families import load_renderer
    from ostinato.store import Store
    from ostinato.store.config import meant_record, shown
    from ostinato.store.sql.database import Database

    meant = meant_record(options.directory, options.store)
    selection = Selection(chosen=_chosen(options), reward=options.reward, unconsented=options.unconsented)
    with closing(OpenRecord(Store(Database(meant.place, read_only=True)), meant.folder)) as run:
        renderer = load_renderer(options.checkpoint or checkpoint_of(meant.folder))
        found = export(run, selection, options.out, options.format, renderer)
    if options.json:
        figures = {"sessions": found.sessions, "rows": found.rows, "left_out": dict(found.left_out)}
        print(json.dumps(figures | {"out": str(options.out), "store": shown(meant.place)}))  # noqa: T201
        return DONE
    for why, count in found.left_out.items():
        print(f"left out {count} sessions: {why}")  # noqa: T201
    print(f"{found.rows} rows of {found.sessions} sessions in {options.out}")  # noqa: T201
    print(f"in {shown(meant.place)}")  # noqa: T201
    return DONE


def _chosen(options: argparse.Namespace) -> "Chosen":
    named = {"source": options.source, "arm": options.arm, "user": options.user, "since": options.since}
    chosen: Chosen = {}
    chosen.update({name: value for name, value in named.items() if value is not None})  # type: ignore[typeddict-item]
    return chosen
