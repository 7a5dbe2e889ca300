"""`ostinato arms`: which engines serve which users. A running gateway notices a change within seconds.

A replica that `set` leaves out gets no further request, and those under way end there; the gateway's gauge
`ostinato_engine_requests` says when it has none left and may go.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ostinato.store.commands import add_record

if TYPE_CHECKING:
    from ostinato.store import Store
    from ostinato.types import Arm

DONE, WRONG = 0, 2
Command = Callable[["Store", argparse.Namespace], None]


def register(commands: Any) -> None:
    """Add `arms` and its commands to the subparsers of `ostinato`."""
    parser = commands.add_parser("arms")
    group = parser.add_subparsers(required=True, metavar="COMMAND")
    _command(group, "list", "every arm, its version, share and engines", _list)
    change = _command(group, "set", "make an arm, or change its version or engines", _set)
    change.add_argument("name", help="the arm's name")
    change.add_argument("--version", type=int, help="the version that the engines serve")
    change.add_argument("--engine", action="append", metavar="URL", help="a replica; the others go")
    divide = _command(group, "split", "send users to arms by their shares", _split)
    divide.add_argument("share", nargs="+", metavar="NAME=SHARE", help="as champion=0.7 challenger=0.3")


def _command(group: Any, name: str, help: str, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=help)
    add_record(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.set_defaults(run=lambda options: _run(command, options))
    return parser


def _run(command: Command, options: argparse.Namespace) -> int:
    from ostinato.deploy.traffic import TrafficError
    from ostinato.store import Store
    from ostinato.store.config import meant_record

    with closing(Store.open(meant_record(options.directory, options.store).place)) as store:
        try:
            command(store, options)
        except (TrafficError, ValueError) as error:
            return _complain(str(error))
        _list(store, options) if command is not _list else None
    return DONE


def _list(store: "Store", options: argparse.Namespace) -> None:
    for arm in store.arms():
        print(json.dumps(_row(arm)) if options.json else _line(arm))  # noqa: T201


def _set(store: "Store", options: argparse.Namespace) -> None:
    """Change an arm; a new one has no share until `split` gives it one, except the very first."""
    from dataclasses import replace

    from ostinato.deploy.traffic import placed
    from ostinato.types import Arm

    def changed(arms: Sequence["Arm"]) -> Sequence["Arm"]:
        known = next((arm for arm in arms if arm.name == options.name), None)
        if known is None and options.version is None:
            raise ValueError(f"there is no arm {options.name!r} yet: give its --version")
        first = 0.0 if arms else 1.0
        made = known or Arm(name=options.name, version=options.version, share=first, engines=())
        if options.version is not None:
            made = replace(made, version=options.version)
        if options.engine is not None:
            made = replace(made, engines=tuple(url.rstrip("/") for url in options.engine))
        return placed(arms, made)

    store.change_arms(changed)


def _split(store: "Store", options: argparse.Namespace) -> None:
    from dataclasses import replace

    from ostinato.deploy.traffic import shared

    def changed(present: Sequence["Arm"]) -> Sequence["Arm"]:
        arms, chosen = {arm.name: arm for arm in present}, []
        for word in options.share:
            name, _, share = word.partition("=")
            if name not in arms:
                raise ValueError(
                    f"there is no arm {name!r}, only {', '.join(arms) or 'none'}: `arms set` makes one"
                )
            try:
                chosen.append(replace(arms[name], share=float(share)))
            except ValueError:
                raise ValueError(f"{word!r} is no NAME=SHARE, as champion=0.7") from None
        return shared(present, sorted(chosen, key=lambda arm: arm.version))  # the champion is the oldest

    store.change_arms(changed)


def _row(arm: "Arm") -> dict[str, Any]:
    return {"name": arm.name, "version": arm.version, "share": arm.share, "engines": list(arm.engines)}


def _line(arm: "Arm") -> str:
    engines = " ".join(arm.engines) or "no engine"
    return f"{arm.name}  version {arm.version}  {arm.share:.0%} of users  {engines}"


def _complain(message: str) -> int:
    print(f"ostinato arms: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
