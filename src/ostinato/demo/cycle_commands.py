"""`ostinato cycle`: turn the cycle of a run again and again, see where it is, and tell it what to do.

The words `pause`, `resume`, `abort`, `promote` and `rollback` are written into the store, where the cycle
reads them; each stays there with its author, time and reason.
"""

import argparse
import getpass
import json
import re
import sys
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.demo.commands import turn
from ostinato.laboratory import laboratory
from ostinato.store.commands import FOLDER_HELP
from ostinato.store.config import meant_folder

if TYPE_CHECKING:
    from ostinato.store.cycle_log import CycleEntry

DONE, WRONG = 0, 2
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
WEEK = Path("runs/week")
"""The folder of a simulated week unless another one is named."""
EVERY_S = 5 * 3600.0
"""The time from the beginning of one cycle to that of the next."""
WITHOUT_END = 1_000_000
"""Cycles of a run that nobody told to end."""
WORDS = {
    "pause": ("pause", "begin no further stage and no trial; whoever is served is served on"),
    "resume": ("resume", "go on after a pause"),
    "abort": ("abort", "give up the candidate in the trial, without one the cycle's; the champion stays"),
    "promote": ("promote", "end the trial under way and serve the challenger to everybody"),
    "rollback": ("roll_back", "end the trial under way and take the challenger's traffic at once"),
}


SETTLES = {
    "confirm": "keep a promoted version, whatever late facts say of it",
    "demote": "take back a promoted version, and those that were promoted since",
}


def register(commands: Any) -> None:
    """Add `cycle` and its commands to the subparsers of `ostinato`."""
    parser = commands.add_parser("cycle")
    _directory(parser)
    parser.add_argument(
        "--every", type=_seconds, default=EVERY_S, help="time of each, as 5h or 30m (default: 5h)"
    )
    parser.add_argument(
        "--cycles", type=int, default=None, help="end after so many (default: never; 30 when simulated)"
    )
    parser.add_argument("--simulate", choices=("week",), help="turn it for simulated developers instead")
    week = parser.add_argument_group("with --simulate week")
    week.add_argument("--seed", type=int, default=1, help="the seed of people, requests and acts")
    week.add_argument("--developers", type=int, default=240, help="the number of people")
    week.add_argument("--adversaries", type=float, default=0.05, help="the share of people who lie")
    week.add_argument("--json", action="store_true", help="print the report as JSON, last line of the output")
    parser.set_defaults(run=_turn, interrupted="stopped: the same command goes on from here")
    group = parser.add_subparsers(metavar="COMMAND")
    status = group.add_parser("status", help="the cycle, the trial beside it, the arms, and the log")
    _directory(status)
    status.add_argument("--json", action="store_true", help="print the state and the whole log as JSON")
    status.set_defaults(run=_status)
    for name, (action, help_) in WORDS.items():
        word = group.add_parser(name, help=help_)
        _directory(word)
        word.add_argument("--by", default=None, help="who says so (default: the user of this machine)")
        word.add_argument("--reason", default="", help="why, for the audit trail")
        word.set_defaults(run=_say, action=action)

    for name, help_ in SETTLES.items():
        word = group.add_parser(name, help=help_)
        word.add_argument("version", type=int, help="the number of the promoted version")
        _directory(word)
        word.add_argument("--by", default=None, help="who says so (default: the user of this machine)")
        word.add_argument("--reason", default="", help="why, for the audit trail")
        word.set_defaults(run=_settle, decision=name)


def _directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--directory", type=Path, help=FOLDER_HELP)


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as `5h`, `30m` or `90`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: give a number and s, m, h or d")
    return float(found[1]) * UNITS[found[2] or "s"]


def _turn(options: argparse.Namespace) -> int:
    from ostinato.loop.run import Run

    if options.simulate:
        options.directory = options.directory or WEEK
        return laboratory("week.command:simulate")(options)
    run = Run(directory=meant_folder(options.directory))
    if not run.config.exists():
        return _complain(f"{run.directory} holds no run: let `ostinato run` make it up to `after`")
    cycles = WITHOUT_END if options.cycles is None else options.cycles
    return turn(run, cycles=cycles, every_s=options.every)


def _status(options: argparse.Namespace) -> int:
    from ostinato.deploy.control import state_of
    from ostinato.deploy.late import promotions
    from ostinato.loop.run import Run
    from ostinato.store.cycle_log import cycle_log

    run = Run(directory=meant_folder(options.directory))
    with closing(run.open_store()) as store:
        entries, arms, promoted = cycle_log(store), store.arms(), promotions(store)
    state = state_of(entries)
    if options.json:
        shares = {arm.name: {"version": arm.version, "share": arm.share} for arm in arms}
        words = [each.words for each in promoted]
        log = [asdict(entry) for entry in entries]
        print(json.dumps({**asdict(state), "arms": shares, "promotions": words, "log": log}))  # noqa: T201
        return DONE
    where = f"{state.cycle}, {state.stage}" if state.stage else "between two cycles"
    print(where + (", paused" if state.paused else ""))  # noqa: T201
    if state.trial:
        print(f"beside it {state.trial}, {state.trial_stage}".rstrip(", "))  # noqa: T201
    for arm in arms:
        print(f"  {arm.name}  version {arm.version}  {arm.share:.0%} of users")  # noqa: T201
    for one in promoted[-5:]:
        print(f"  {one.words}")  # noqa: T201
    for entry in entries[-10:]:
        print(f"  {_line(entry)}")  # noqa: T201
    return DONE


def _say(options: argparse.Namespace) -> int:
    from ostinato.deploy.control import CycleWordError, say
    from ostinato.loop.run import Run
    from ostinato.store.cycle_log import CycleAction

    run = Run(directory=meant_folder(options.directory))
    with closing(run.open_store()) as store:
        try:
            entry = say(store, CycleAction(options.action), options.by or getpass.getuser(), options.reason)
        except CycleWordError as error:
            return _complain(str(error))
    print(_line(entry))  # noqa: T201
    return DONE


def _settle(options: argparse.Namespace) -> int:
    from ostinato.deploy.late import LateError, settle_by_hand
    from ostinato.loop.run import Run
    from ostinato.types import Decision

    run, by = Run(directory=meant_folder(options.directory)), options.by or getpass.getuser()
    with closing(run.open_store()) as store:
        try:
            held = settle_by_hand(
                store, options.version, Decision(options.decision), by=by, reason=options.reason
            )
        except LateError as error:
            return _complain(str(error))
    if held.evidence.get("by") != by or held.decision.value != options.decision:
        return _complain(f"version {options.version} was settled before: {held.reason}")
    print(f"version {options.version}: {held.reason}")  # noqa: T201
    return DONE


def _line(entry: "CycleEntry") -> str:
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(sep=" ", timespec="seconds")
    return f"{at}  {entry.by}  {entry.action.value}  {entry.cycle}  {entry.detail}".rstrip()


def _complain(message: str) -> int:
    print(f"ostinato cycle: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
