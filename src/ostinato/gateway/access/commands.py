"""`ostinato keys`, `consent` and `purge`: the operator's decisions about the people who use the gateway.

The commands work on the record itself, so the right to read its file is the permission to run them. A running
gateway notices a change within seconds.
"""

import argparse
import getpass
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ostinato.store.commands import add_record

if TYPE_CHECKING:
    from ostinato.store import Store
    from ostinato.types import ApiKey

DONE, UNFINISHED, WRONG = 0, 1, 2
Command = Callable[["Store", argparse.Namespace], Any]


def register(commands: Any) -> None:
    """Add the commands to the subparsers of `ostinato`."""
    keys = _group(commands, "keys")
    add = _command(keys, "add", "make a key, and the file of --store if it is missing; print it once", _add)
    add.add_argument("user", help="the name that the user's sessions are recorded under")
    add.add_argument("--organisation", default="", help="the user's organisation (default: none)")
    add.add_argument(
        "--roles", default="use,feedback", help="of use, feedback, admin (default: use,feedback)"
    )
    add.add_argument("--arm", default=None, help="pin the user to an arm")
    add.add_argument("--requests-per-minute", type=int, default=None, help="(default: no limit)")
    add.add_argument(
        "--concurrent", type=int, default=None, help="model calls at the same time (default: no limit)"
    )
    _command(keys, "list", "every key that is not revoked", _list)
    revoke = _command(keys, "revoke", "refuse a key from now on", _revoke)
    revoke.add_argument("id", help="the key's id, as `keys list` shows it")

    consent = _group(commands, "consent")
    show = _command(consent, "show", "what holds now, and who said so", _show)
    say = _command(consent, "set", "record a yes or a no", _set)
    say.add_argument("granted", choices=["yes", "no"], help="whether the sessions may be trained on")
    say.add_argument("--by", default=None, help="who says so (default: you)")
    for parser, verb in ((show, "shown"), (say, "recorded")):
        parser.add_argument("--organisation", default="", help=f"whose decision is {verb}")
        parser.add_argument("--user", default="", help=f"whose decision is {verb}")

    purge = _common(commands.add_parser("purge"))
    which = purge.add_mutually_exclusive_group(required=True)
    which.add_argument("--user", default="", help="the user whose data is removed")
    which.add_argument(
        "--session", default="", help="the id of the one session that is removed, or its beginning"
    )
    purge.add_argument("--organisation", default=None, help="only the user of this organisation")
    purge.add_argument("--by", default=None, help="who wants it (default: you)")
    purge.set_defaults(run=lambda options: _run(_purge, options))


def _group(commands: Any, name: str) -> Any:
    return commands.add_parser(name).add_subparsers(required=True, metavar="COMMAND")


def _command(group: Any, name: str, help: str, command: Command) -> argparse.ArgumentParser:
    parser = _common(group.add_parser(name, help=help))
    parser.set_defaults(run=lambda options: _run(command, options))
    return parser


def _common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add_record(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _run(command: Command, options: argparse.Namespace) -> int:
    from ostinato.store import Store, StoreError
    from ostinato.store.config import is_there, meant_record, shown

    try:
        # A gateway can be given its first key before it first starts; all else is about what is there.
        is_new = command is _add and options.store is not None and not is_there(options.store)
        place = options.store if is_new else meant_record(options.directory, options.store).place
        with closing(Store.open(place)) as store:
            result = command(store, options)
    except StoreError as error:
        return _wrong(str(error))
    where = shown(place)
    new = {"new_store": is_new} if command is _add else {}
    if options.json:
        print(json.dumps({**_named(command, result), "store": where, **new}))  # noqa: T201
    else:
        print(f"{_text(result)}\nin {where}{', a new record: there was none' if is_new else ''}")  # noqa: T201
    if isinstance(result, Mapping) and result.get("scrubbed") is False:
        return _unfinished(where)
    return DONE


def _named(command: Command, result: Any) -> dict[str, Any]:
    """Return a result as an object: a list has the name of what it lists."""
    return {"keys" if command is _list else "consent": result} if isinstance(result, list) else result


def _unfinished(path: str) -> int:
    message = (
        f"ostinato: NOT FINISHED: somebody reads {path}, so its log still holds what was removed. Once "
        f"nobody does, a gateway that has it open empties it, or the next command, such as `keys list`"
    )
    print(message, file=sys.stderr)  # noqa: T201
    return UNFINISHED


def _add(store: "Store", options: argparse.Namespace) -> dict[str, Any]:
    from ostinato.store.accounts import hash_key, new_key, read_roles
    from ostinato.types import ApiKey

    secret = new_key()
    key = ApiKey(
        hash=hash_key(secret),
        user=options.user,
        roles=read_roles(options.roles),
        organisation=options.organisation,
        arm=options.arm,
        requests_per_minute=options.requests_per_minute,
        concurrent=options.concurrent,
        created_at=time.time(),
    )
    store.accounts.add(key)
    return {"key": secret, **_plain(store.accounts.key(key.hash) or key)}


def _list(store: "Store", _: argparse.Namespace) -> list[dict[str, Any]]:
    return [_plain(key) for key in store.accounts.keys()]  # noqa: SIM118 (a method, not a mapping)


def _revoke(store: "Store", options: argparse.Namespace) -> dict[str, Any]:
    return _plain(store.accounts.revoke(options.id)) | {"revoked": True}


def _show(store: "Store", options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the latest decision of each organisation and user, or of the one that is named."""
    latest = {(each.organisation, each.user): asdict(each) for each in store.accounts.consents()}
    wanted = {name: getattr(options, name) for name in ("organisation", "user") if getattr(options, name)}
    decisions = [each for each in latest.values() if wanted.items() <= each.items()]
    agreed = store.accounts.consented([(each["organisation"], each["user"]) for each in decisions])
    for each in decisions:
        each["trained_on"] = bool(each["user"]) and agreed[each["organisation"], each["user"]]
    return decisions


def _set(store: "Store", options: argparse.Namespace) -> dict[str, Any]:
    decision = store.accounts.set_consent(
        organisation=options.organisation,
        user=options.user,
        granted=options.granted == "yes",
        by=options.by or getpass.getuser(),
    )
    return asdict(decision)


def _purge(store: "Store", options: argparse.Namespace) -> dict[str, Any]:
    from ostinato.store.abbreviation import session_meant
    from ostinato.store.purge import purge

    session = session_meant(store, options.session) if options.session else ""
    scope = {"user": options.user, "session": session, "organisation": options.organisation}
    return asdict(purge(store, **scope, by=options.by or getpass.getuser()))


def _plain(key: "ApiKey") -> dict[str, Any]:
    fields = asdict(key)
    del fields["hash"]
    return {"id": key.id, **fields, "roles": sorted(key.roles)}


def _text(result: object) -> str:
    """Return a JSON value as lines for people, without the fields that are not set."""
    if isinstance(result, Mapping):
        shown = {name: value for name, value in result.items() if value not in (None, "", [], ())}
        return "  ".join(f"{name}={_word(name, value)}" for name, value in shown.items())
    assert isinstance(result, Sequence)
    return "\n".join(map(_text, result)) or "none"


def _word(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_at") and isinstance(value, float):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _wrong(message: str) -> int:
    print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
