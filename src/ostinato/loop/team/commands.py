"""`ostinato team`: init, up, add, status and remove; and `ostinato join` on a person's machine."""

import argparse
import asyncio
import json
import logging
import shlex
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from ostinato.loop.team.file import Team
    from ostinato.loop.team.people import Standing

DONE = 0
ASKED_S = 5.0
QUESTIONS = {
    "engine": "The address of the engine that serves the model, as http://gpu:8000/v1",
    "model": "The model that it serves: a directory here, or a name on the hub",
    "address": "The address at which people's machines will reach this one [http://127.0.0.1:8080]",
}
"""The three questions of `init`; each has its flag."""


def register(commands: Any) -> None:
    """Add `team` and `join` to the subparsers of `ostinato`."""
    group = commands.add_parser("team").add_subparsers(required=True, metavar="COMMAND")
    init = _command(group, "init", "write the team's file, its record, the units and proxies", _init)
    init.add_argument("--engine", help="address of the engine that serves the model (asked for)")
    init.add_argument("--model", help="directory, or name on the hub, of that model (asked for)")
    init.add_argument("--address", help="address that people will use, as https://models.example (asked for)")
    init.add_argument("--people", type=int, default=20, help="about how many will work")
    up = _command(group, "up", "gateway, dashboard and cycle, until it is stopped", _up)
    up.add_argument("--no-cycle", action="store_true", help="record only, and train nothing")
    up.set_defaults(interrupted="stopped: the same command goes on from here")
    add = _command(group, "add", "print a line for each person, by which their machine joins", _add)
    add.add_argument("names", nargs="+", metavar="NAME", help="a person")
    add.add_argument("--org", default="", help="the organisation of these people (default: none)")
    add.add_argument("--days", type=float, default=7.0, help="days for which a line is valid")
    add.add_argument("--json", action="store_true", help="print JSON")
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
    join.add_argument(
        "--consent", choices=["yes", "no"], help="whether your sessions may be trained on (asked for)"
    )
    join.add_argument(
        "--repository",
        action="append",
        type=Path,
        metavar="DIR",
        help="install hooks in this repository (asked for)",
    )
    join.add_argument(
        "--client",
        action="append",
        choices=list(CLIENTS),
        help="set up this client, without overwriting what it has (asked for)",
    )
    join.set_defaults(run=_join)


def _command(group: Any, name: str, help: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=help)
    parser.add_argument("--file", type=Path, default=Path("team.toml"), help="the team's file")
    parser.set_defaults(run=run)
    return parser


def _open(options: argparse.Namespace) -> "Team":
    from ostinato.loop.team.file import open_team

    return open_team(options.file)


def _init(options: argparse.Namespace) -> int:
    from ostinato.loop.team.file import TeamError, Wishes, make_team

    given = {name: getattr(options, name) for name in QUESTIONS}
    for name, question in QUESTIONS.items():
        if given[name] is None and sys.stdin.isatty():
            given[name] = input(f"{question}: ").strip() or None
    if missing := [f"--{name}" for name in ("engine", "model") if not given[name]]:
        raise TeamError(f"{' and '.join(missing)} must be given")
    engine, known = given["engine"].rstrip("/").removesuffix("/v1"), {}
    served = _served(engine)
    if served is None:
        _say(f"nothing responds at {engine} now: `ostinato team up` waits for it")
    else:
        _check_served(engine, given["model"], served)
        known = {"context": context} if (context := served[0].get("max_model_len")) else {}
    address = {"address": given["address"]} if given["address"] else {}
    wishes = Wishes(engine=engine, model=given["model"], people=options.people, **address, **known)
    for path in make_team(options.file, wishes):
        _say(f"wrote {path}")
    at = "" if options.file == Path("team.toml") else f" --file {shlex.quote(str(options.file))}"
    _say(f"next: `ostinato team up{at}`, or for ever: the first line of ostinato-team.service says how")
    _say(f"then: `ostinato team add NAME…{at}`")
    return DONE


def _served(engine: str) -> list[dict[str, Any]] | None:
    """Return the models that an engine lists; None where nothing responds."""
    from ostinato.loop.team.file import TeamError

    if urlsplit(engine).scheme not in ("http", "https"):
        raise TeamError(f"--engine is {engine!r}: write it as http://gpu:8000/v1")
    try:
        with urlopen(Request(f"{engine}/v1/models"), timeout=ASKED_S) as answer:  # noqa: S310 (checked above)
            listed: list[dict[str, Any]] = json.load(answer)["data"]
    except (URLError, TimeoutError, ConnectionError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TeamError(f"--engine {engine}: what responds there lists no models ({error})") from error
    return listed


def _check_served(engine: str, model: str, served: list[dict[str, Any]]) -> None:
    from ostinato.loop.team.file import TeamError

    names = {str(name) for each in served for name in (each.get("id"), each.get("root")) if name}
    ends = {Path(name).name for name in names}
    if model not in names and Path(model).name not in ends:
        raise TeamError(
            f"the engine at {engine} serves {', '.join(sorted(names)) or 'nothing'}, and not {model}: name with "
            "--model the checkpoint that it serves; one that is served under another name has it as its `root`"
        )


def _up(options: argparse.Namespace) -> int:
    from rich.console import Console

    from ostinato import extras
    from ostinato.loop.team.up import up

    extras.need("torch", "an engine server")
    extras.need("jinja2", "the dashboard")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    console = Console(highlight=False, markup=False)
    return asyncio.run(up(_open(options), console, cycle=not options.no_cycle))


def _add(options: argparse.Namespace) -> int:
    from ostinato.loop.team.people import invite

    team = _open(options)
    with closing(team.open_store()) as store:
        codes = invite(store, options.names, options.org, days=options.days)
        decided = {(each.organisation, each.user) for each in store.accounts.consents()}
    lines = {name: f"ostinato join {team.address} {code}" for name, code in codes.items()}
    if options.json:
        print(json.dumps({"join": lines, "valid_days": options.days}))  # noqa: T201
        return DONE
    for name, line in lines.items():
        _say(f"{name}:\n  {line}")
    _say(
        f"each is valid once, for {options.days:g} days; a machine without ostinato says how it is installed:"
    )
    _say(f"  curl -fsS {team.address}/join | sh -s -- {team.address} CODE")
    if options.org and (options.org, "") not in decided:
        _say(
            f"{options.org} has not said whether its sessions may be trained on, so none is: ostinato consent set yes "
            f"--organisation {shlex.quote(options.org)} --directory {shlex.quote(str(team.run.directory))}"
        )
    return DONE


def _remove(options: argparse.Namespace) -> int:
    from ostinato.loop.team.people import remove

    team = _open(options)
    with closing(team.open_store()) as store:
        left = remove(store, options.name, options.org)
    who = f"--user {shlex.quote(left.user)}"
    who += f" --organisation {shlex.quote(left.organisation)}" if left.organisation else ""
    where = f"--directory {shlex.quote(str(team.run.directory))}"
    _say(
        f"{left.user}: {left.keys} keys and {left.codes} codes are refused from now on, within 5 s everywhere"
    )
    _say(
        "hooks on their machines keep what they see there and are refused: `ostinato hooks uninstall` ends them"
    )
    _say(
        f"{left.sessions} sessions stay as they are; train on none of them: ostinato consent set no {who} {where}"
    )
    _say(f"remove them, and list the versions that learnt from them: ostinato purge {who} {where}")
    return DONE


def _status(options: argparse.Namespace) -> int:
    from ostinato.loop.team.people import standing

    team, now = _open(options), time.time()
    with closing(team.open_store()) as store:
        found = standing(store, team.config.live, now)
    if options.json:
        said = {"first_in_days": found.first_in_days, "claim": found.claim}
        print(json.dumps({**asdict(found), **said}))  # noqa: T201
        return DONE
    for line in _lines(team, found, now):
        _say(line)
    return DONE


def _lines(team: "Team", found: "Standing", now: float) -> list[str]:
    lines = [f"{team.address}: {'answers' if _answers(team) else 'nothing answers: `ostinato team up`'}"]
    if log := _last_line(team.front / "logs" / "cycle.log"):
        lines.append(f"cycle: {log}")
    for each in found.people:
        ago = "" if each.last_at is None else f", the last began {(now - each.last_at) / 3600:.1f} h ago"
        trained = "may be trained on" if each.trained_on else "without consent"
        name = f"{each.user} ({each.organisation})" if each.organisation else each.user
        lines.append(f"  {name}: {each.state}, {each.sessions} sessions{ago}, {trained}")
    lines.append(found.arrived.line(found.wanted))
    days = found.first_in_days
    if days is None:
        lines.append("first candidate: never, as no session of the last week may be trained on")
    else:
        lines.append(f"first candidate: in {days:.1f} days, at {found.a_day:.1f} such sessions a day")
    return [*lines, f"what can be shown: {found.claim}"]


def _answers(team: "Team") -> bool:
    live = team.config.live
    host = "127.0.0.1" if live.host == "0.0.0.0" else live.host  # noqa: S104
    try:
        with urlopen(f"http://{host}:{live.port}/healthz", timeout=ASKED_S):
            return True
    except (URLError, TimeoutError, ConnectionError):
        return False


def _last_line(log: Path) -> str:
    """Return the end of a log as one line; empty without one."""
    return (
        "" if not log.exists() else (log.read_text(errors="replace").strip().splitlines() or [""])[-1][:300]
    )


def _join(options: argparse.Namespace) -> int:
    from ostinato.loop.team.join import join

    for line in join(options):
        _say(line)
    return DONE


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201
