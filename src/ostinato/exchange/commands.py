"""`ostinato export` writes recorded sessions for other trainers; `ostinato import` reads those of others."""

import argparse
import json
import sys
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.store.commands import add_record
from ostinato.types import Source

if TYPE_CHECKING:
    from ostinato.exchange.record import Chosen
    from ostinato.store import Store

DONE = 0
FORMATS = ("claude-code", "codex", "opencode", "litellm", "langfuse")
MOST_SHOWN = 20
"""The damaged lines that are printed."""
ASKED = """May the model be trained on these sessions of {user}? Whoever can open the record reads them
anyway. The word is {user}'s alone, and can be taken back: ostinato consent set no --user {user}. [yes/no] """
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
    read = commands.add_parser("import")
    read.add_argument("format", choices=FORMATS, help="the program that recorded them")
    read.add_argument(
        "logs", nargs="*", type=Path, help="files or folders (default: your own, in its usual place)"
    )
    read.add_argument("--user", default="", help="whose sessions they are (default: as the log says)")
    read.add_argument("--organisation", default="", help="the person's organisation")
    read.add_argument(
        "--consent",
        choices=["yes", "no"],
        help="what that person says to training on them (default: what the record has, else you are asked)",
    )
    _common(read, "what was read")
    read.set_defaults(
        run=_import, interrupted="stopped: what was read is in the record, and the rest can follow"
    )


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


def _import(options: argparse.Namespace) -> int:
    from ostinato.exchange.conversations import checkpoint_of
    from ostinato.exchange.importing import Owner, bring, files_of
    from ostinato.model.families import load_renderer
    from ostinato.store import Store
    from ostinato.store.config import meant_record, shown

    meant = meant_record(options.directory, options.store)
    files = files_of(options.format, options.logs)
    renderer = load_renderer(options.checkpoint or checkpoint_of(meant.folder))
    with closing(Store.open(meant.place)) as store:
        _settle_consent(store, options)
        owner = Owner(user=options.user, organisation=options.organisation)
        found = bring(store, renderer, options.format, files, owner)
    if options.json:
        print(json.dumps(asdict(found) | {"store": shown(meant.place)}, default=str))  # noqa: T201
        return DONE
    for each in found.named[:MOST_SHOWN]:
        print(f"left out: {each.file} line {each.line}: {each.why}")  # noqa: T201
    for why, count in found.left_out.items():
        print(f"left out {count} sessions: {why}")  # noqa: T201
    print(  # noqa: T201
        f"{found.sessions} sessions and {found.turns} turns are new, {found.grown} sessions have grown, "
        f"{found.known} were there, {found.damaged} lines are damaged; {found.unconsented} of the new "
        "sessions are not to be trained on"
    )
    print(f"in {shown(meant.place)}")  # noqa: T201
    return DONE


def _settle_consent(store: "Store", options: argparse.Namespace) -> None:
    """Record what the person says; they are asked where the record has no word of theirs.

    Raises ExchangeError where nobody can be asked.
    """
    from ostinato.exchange.conversations import ExchangeError

    if not options.user:
        if options.consent == "yes":
            raise ExchangeError("--consent yes is the word of one person: name them with --user")
        return
    pair = (options.organisation, options.user)
    decided = any((each.organisation, each.user) == pair for each in store.accounts.consents())
    word = options.consent
    if word is None and not decided:
        if not sys.stdin.isatty():
            raise ExchangeError(
                f"the record has no word of {options.user} on training: --consent yes or no, as they say"
            )
        word = "yes" if input(ASKED.format(user=options.user)).strip().lower() in {"y", "yes"} else "no"
    if word is not None:
        store.accounts.set_consent(
            organisation=options.organisation, user=options.user, granted=word == "yes", by=options.user
        )
