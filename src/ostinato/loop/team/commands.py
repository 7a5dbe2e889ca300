"""`ostinato team`: init, up, add, status and remove; and `ostinato join` on a person's machine."""

import argparse
import asyncio
import json
import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from ostinato.web.joined import LOCAL
from ostinato.web.port import root_of

if TYPE_CHECKING:
    from ostinato.loop.team.file import Team

DONE = 0
ASKED_S = 5.0
CONTEXT = 32_768
"""The tokens that an engine is taken to read while it does not say so."""
QUESTIONS = {
    "engine": "The address of the engine that serves the model, as http://gpu:8000/v1",
    "model": "The model that it serves: a directory here, or a name on the hub",
    "address": f"The address at which people's machines will reach this one [{LOCAL}]",
}
"""The three questions of `init`; each has its flag."""


def register(commands: Any) -> None:
    """Add `team` and `join` to the subparsers of `ostinato`."""
    group = commands.add_parser("team").add_subparsers(required=True, metavar="COMMAND")
    init = _command(group, "init", "write the team's file, its record, the units and proxies", _init)
    init.add_argument("--engine", help="address of the engine that serves the model (asked for)")
    init.add_argument("--model", help="directory, or name on the hub, of that model (asked for)")
    init.add_argument("--address", help=f"address that people will use (asked for; default: {LOCAL})")
    init.add_argument("--people", type=int, default=20, help="about how many will work")
    up = _command(group, "up", "gateway, dashboard and cycle, until it is stopped", _up)
    up.add_argument("--no-cycle", action="store_true", help="record only, and train nothing")
    up.set_defaults(interrupted="stopped: the same command goes on from here")
    add = _command(group, "add", "print a line for each person, by which their machine joins", _add)
    add.add_argument("names", nargs="+", metavar="NAME", help="a person")
    add.add_argument("--org", default="", help="the organisation of these people (default: none)")
    add.add_argument("--days", type=float, default=7.0, help="days for which a line is valid")
    status = _command(group, "status", "who works, what may be learnt from, and what can be shown", _status)
    status.add_argument("--json", action="store_true", help="print JSON")
    remove = _command(group, "remove", "revoke a person's keys and codes, and say what stays", _remove)
    remove.add_argument("name", help="the person who leaves")
    remove.add_argument("--org", default=None, help="their organisation, where several know the name")
    _register_join(commands.add_parser("join"))


def _register_join(join: argparse.ArgumentParser) -> None:
    from ostinato.loop.team.clients import CLIENTS

    join.add_argument("url", nargs="?", help="the team's address (default: the one that was joined)")
    join.add_argument("code", nargs="?", help="the code that `ostinato team add` printed")
    consent = "whether your sessions may be trained on (asked for)"
    join.add_argument("--consent", choices=["yes", "no"], help=consent)
    repository = "install hooks in this repository (asked for)"
    join.add_argument("--repository", action="append", type=Path, metavar="DIR", help=repository)
    client = "set up this client, without overwriting what it has (asked for)"
    join.add_argument("--client", action="append", choices=list(CLIENTS), help=client)
    join.set_defaults(run=_join)


def _command(
    group: Any, name: str, help: str, lines: Callable[[argparse.Namespace], Iterator[str]]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=help)
    parser.add_argument("--file", type=Path, default=Path("team.toml"), help="the team's file")
    parser.set_defaults(run=lambda options: _print(lines(options)))
    return parser


def _print(lines: Iterator[str]) -> int:
    for line in lines:
        print(line, flush=True)  # noqa: T201
    return DONE


def _open(options: argparse.Namespace) -> "Team":
    from ostinato.loop.team.file import open_team

    return open_team(options.file)


def _init(options: argparse.Namespace) -> Iterator[str]:
    from ostinato.loop.team.file import TeamError, make_team

    given = {name: getattr(options, name) for name in QUESTIONS}
    for name, question in QUESTIONS.items():
        if given[name] is None and sys.stdin.isatty():
            given[name] = input(f"{question}: ").strip()
    if missing := [f"--{name}" for name in ("engine", "model") if not given[name]]:
        raise TeamError(f"{' and '.join(missing)} must be given")
    engine, address = root_of(given["engine"]), (given["address"] or LOCAL).rstrip("/")
    for name, url in {"--engine": engine, "--address": address}.items():
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise TeamError(f"{name} is {url!r}: write it as http://gpu:8000")
    context = _context(engine, given["model"])
    if context is None:
        yield f"nothing responds at {engine} now: `ostinato team up` waits for it"
    terms = {"engine": engine, "model": given["model"], "address": address, "people": options.people}
    for path in make_team(options.file, **terms, context=context or CONTEXT):
        yield f"wrote {path}"
    at = "" if options.file == Path("team.toml") else f" --file {shlex.quote(str(options.file))}"
    yield f"next: `ostinato team up{at}`, or for ever as ostinato-team.service says in its first line"
    yield f"then: `ostinato team add NAME…{at}`"


def _context(engine: str, model: str) -> int | None:
    """Return the tokens that the engine reads; None without an answer. Raises TeamError for another model."""
    from ostinato.loop.team.file import TeamError

    try:
        with urlopen(f"{engine}/v1/models", timeout=ASKED_S) as answer:  # noqa: S310 (checked before)
            served: list[dict[str, Any]] = json.load(answer)["data"]
    except OSError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TeamError(f"--engine {engine}: what responds there lists no models ({error})") from error
    names = {str(each[name]) for each in served for name in ("id", "root") if each.get(name)}
    if Path(model).name not in {Path(name).name for name in names}:
        raise TeamError(
            f"the engine at {engine} serves {', '.join(sorted(names)) or 'nothing'}, and not {model}: name "
            "with --model the checkpoint that it serves"
        )
    return int(served[0].get("max_model_len") or CONTEXT)


def _up(options: argparse.Namespace) -> Iterator[str]:
    from rich.console import Console

    from ostinato import extras
    from ostinato.loop.team.up import up

    extras.need("torch", "an engine server")
    extras.need("jinja2", "the dashboard")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    asyncio.run(up(_open(options), Console(highlight=False, markup=False), cycle=not options.no_cycle))
    yield from ()


def _add(options: argparse.Namespace) -> Iterator[str]:
    from ostinato.loop.team.people import invite

    team = _open(options)
    with closing(team.open_store()) as store:
        codes = invite(store, options.names, options.org, days=options.days)
        agreed = {(each.organisation, each.user) for each in store.accounts.consents()}
    for name, code in codes.items():
        yield f"{name}:\n  ostinato join {team.address} {code}"
    yield f"each is valid once, for {options.days:g} days; on a machine that may lack ostinato it is:"
    yield f"  curl -fsS {team.address}/join | sh -s -- {team.address} CODE"
    if options.org and (options.org, "") not in agreed:
        yield f"{options.org} has not agreed that its sessions are trained on, so none is before:"
        yield f"  ostinato consent set yes --organisation {shlex.quote(options.org)} {_record(team)}"


def _remove(options: argparse.Namespace) -> Iterator[str]:
    from ostinato.loop.team.people import remove

    team = _open(options)
    with closing(team.open_store()) as store:
        person, keys, codes = remove(store, options.name, options.org)
    who = f"--user {shlex.quote(person.user)}"
    who += f" --organisation {shlex.quote(person.organisation)}" if person.organisation else ""
    yield f"{person.user}: {keys} keys and {codes} codes are refused from now on, within 5 s"
    yield "hooks on their machines go on there and are refused; to end them: ostinato hooks uninstall"
    yield f"{person.sessions} sessions stay. To train on none of them from now on:"
    yield f"  ostinato consent set no {who} {_record(team)}"
    yield "to remove them, and to see which versions learnt from them:"
    yield f"  ostinato purge {who} {_record(team)}"


def _record(team: "Team") -> str:
    return f"--directory {shlex.quote(str(team.run.directory))}"


def _status(options: argparse.Namespace) -> Iterator[str]:
    from ostinato.loop.team.people import standing

    team, now = _open(options), time.time()
    with closing(team.open_store()) as store:
        found = standing(store, team.config.live, now)
    days = found.first_in_days
    if options.json:
        yield json.dumps({**asdict(found), "first_in_days": days, "up": _answers(team)})
        return
    yield f"{team.address}: {'up' if _answers(team) else 'down: `ostinato team up`'}"
    if line := _last_line(team.front / "logs" / "cycle.log"):
        yield f"cycle: {line}"
    for each in found.people:
        ago = "" if each.last_at is None else f", the last began {(now - each.last_at) / 3600:.1f} h ago"
        name = f"{each.user} ({each.organisation})" if each.organisation else each.user
        trained = "may be trained on" if each.trained_on else "without consent"
        yield f"  {name}: {each.state}, {each.sessions} sessions{ago}, {trained}"
    yield found.arrived.line(found.wanted)
    pace = "never, as no session of the last week may be trained on"
    if days is not None:
        pace = f"in {days:.1f} days, at {found.a_day:.1f} such sessions a day"
    yield f"first candidate: {pace}"
    yield f"what can be shown: {found.claim}"


def _answers(team: "Team") -> bool:
    live = team.config.live
    host = live.host.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    try:
        with urlopen(f"http://{host}:{live.port}/healthz", timeout=ASKED_S):
            return True
    except (URLError, OSError):
        return False


def _last_line(log: Path) -> str:
    """Return the end of a log as one line; empty without one."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _join(options: argparse.Namespace) -> int:
    from ostinato.loop.team.join import join

    return _print(join(options))
