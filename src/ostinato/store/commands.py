"""`ostinato store`: what a record consists of, its layout, and the place that it takes."""

import argparse
import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

DONE, UNFINISHED, WRONG = 0, 1, 2
MB = 2**20
FOLDER_HELP = "the run folder (default: OSTINATO_RECORD, else the only one below runs/ that has a record)"
WOULD = "nothing was changed: add --yes to do it"


def register(commands: Any) -> None:
    """Add `store` and its commands to the subparsers of `ostinato`."""
    group = commands.add_parser("store").add_subparsers(required=True, metavar="COMMAND")
    info = _common(group.add_parser("info", help="the layout, and rows and sizes by table and age"))
    info.set_defaults(run=_info)
    compact = _common(group.add_parser("compact", help="remove the ledger's tokens of groups that ended"))
    compact.add_argument(
        "--older-than", type=float, required=True, metavar="DAYS", help="only of sessions begun before that"
    )
    compact.add_argument("--yes", action="store_true", help="do it; without, only say what would be done")
    compact.set_defaults(run=_compact)
    expire = _common(group.add_parser("expire", help="remove old sessions that nothing needs any more"))
    expire.add_argument(
        "--older-than",
        type=float,
        required=True,
        metavar="DAYS",
        help="only what was last heard of before that",
    )
    expire.add_argument(
        "--uncollected", action="store_true", help="live sessions too that no training has looked at"
    )
    expire.add_argument("--yes", action="store_true", help="do it; without, only say what would be done")
    expire.set_defaults(run=_expire)


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a record; `meant_record` reads them."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--directory", type=Path, help=FOLDER_HELP)
    which.add_argument("--store", default=None, help="SQLite file or database URL, instead of a run folder")


def _common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add_record(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _place(options: argparse.Namespace) -> str | None:
    """Return the record, and None after a complaint when there is none."""
    from ostinato.store import StoreError
    from ostinato.store.config import meant_record

    try:
        return meant_record(options.directory, options.store).place
    except StoreError as error:
        _complain(str(error))
        return None


def _info(options: argparse.Namespace) -> int:
    from ostinato.store import Store
    from ostinato.store.sql.database import layout_of
    from ostinato.store.sql.schema import SCHEMA
    from ostinato.store.upkeep import contents

    if (place := _place(options)) is None:
        return WRONG
    if (layout := layout_of(place)) != SCHEMA:
        text = f"layout {layout}; this version of ostinato reads {SCHEMA} alone"
        return _say(options, place, {"layout": layout, "reads": SCHEMA}, [text])
    with closing(Store.open(place)) as store:
        found = contents(store)
    lines = [f"layout {layout}"]
    for name, rows in sorted(found.rows.items(), key=lambda row: -found.bytes.get(row[0], row[1])):
        size = f"{found.bytes[name] / MB:>12,.1f} MB" if name in found.bytes else ""
        lines.append(f"  {name:<12} {rows:>12,} rows{size}")
    for age in found.ages:
        label = "older" if age.days is None else f"up to {age.days} days"
        lines.append(f"  turns {label:<14} {age.turns:>12,} with {age.bytes / MB:,.1f} MB of tokens")
    return _say(options, place, asdict(found), lines)


def _place_of_old(options: argparse.Namespace) -> str | None:
    """Return the place of a command with --older-than; complain and return None where either is wrong."""
    place = _place(options)
    if place is not None and not options.older_than >= 0:
        _complain("--older-than is a number of days, 0 or more")
        return None
    return place


def _compact(options: argparse.Namespace) -> int:
    from ostinato.store import Store
    from ostinato.store.upkeep import DAY_S, compact, spare

    if (place := _place_of_old(options)) is None:
        return WRONG
    with closing(Store.open(place)) as store:
        before = store.now() - options.older_than * DAY_S
        found = compact(store, before) if options.yes else spare(store, before)
    what = (
        f"{found.bytes / MB:,.1f} MB of tokens in {found.samples} samples of {found.groups} groups that ended"
    )
    words = f"removed {what}" if options.yes else f"would remove {what}; {WOULD}"
    return _say(options, place, {**asdict(found), "removed": options.yes}, [words])


def _expire(options: argparse.Namespace) -> int:
    from ostinato.store import Store
    from ostinato.store.retention import expirable, expire
    from ostinato.store.upkeep import DAY_S

    if (place := _place_of_old(options)) is None:
        return WRONG
    with closing(Store.open(place)) as store:
        before = store.now() - options.older_than * DAY_S
        work = expire if options.yes else expirable
        found = work(store, before, uncollected=options.uncollected)
    verb = "removed" if options.yes else "would remove"
    lines = [f"{verb} what {found.sessions:,} sessions consist of, {found.bytes / MB:,.1f} MB of tokens"]
    lines += [f"  {name:<12} {rows:>12,} rows" for name, rows in found.rows.items()]
    for age in found.ages:
        label = "older" if age.days is None else f"up to {age.days} days"
        lines.append(f"  turns {label:<14} {age.turns:>12,} with {age.bytes / MB:,.1f} MB of tokens")
    lines += [f"{count:,} old sessions stay: they {why}" for why, count in found.stay.items()]
    if not options.yes:
        lines.append(WOULD)
    if not found.scrubbed:
        lines.append("NOT FINISHED: another process reads the log of the record, which still has the data")
    _say(options, place, {**asdict(found), "removed": options.yes}, lines)
    return DONE if found.scrubbed else UNFINISHED


def _say(options: argparse.Namespace, place: str, result: dict[str, Any], lines: list[str]) -> int:
    """Print a result and the record that it is of, which a default may have chosen."""
    from ostinato.store.config import shown

    where = shown(place)
    print(json.dumps({**result, "store": where}) if options.json else "\n".join([*lines, f"in {where}"]))  # noqa: T201
    return DONE


def _complain(message: str) -> None:
    print(f"ostinato store: {message}", file=sys.stderr)  # noqa: T201
