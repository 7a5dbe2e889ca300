"""The commands `ostinato sandbox …`. A server holds the sandboxes, so they outlive each command.

`serve` starts the server. The other commands call it: its address and a key are options, or lie in the state
directory.
"""

import argparse
import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.config import ConfigError, secret

if TYPE_CHECKING:
    from ostinato.fleet.client.client import SandboxClient

DONE, FAILED, WRONG = 0, 1, 2
STATE = Path("runs/sandbox")
PHASES = ("placed", "started", "ran", "saved")
Command = Callable[["SandboxClient", argparse.Namespace], Awaitable[int]]


def register(commands: Any) -> None:
    """Add `sandbox` and its commands to the subparsers of `ostinato`."""
    parser = commands.add_parser("sandbox", help="run, fork, snapshot and watch sandboxes")
    group = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_servers(group)
    run = _client(group, "run", "start a sandbox, run a command in it, show where the time went", _run)
    start = run.add_mutually_exclusive_group()
    start.add_argument(
        "--repo", type=Path, default=Path(), help="a directory to start from (default: the current one)"
    )
    start.add_argument("--template", default=None, help="a template or a snapshot of the server instead")
    run.add_argument("--timeout", type=float, default=300.0, help="seconds the sandbox may live")
    run.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    run.add_argument("--keep", action="store_true", help="leave the sandbox; its name is the last line")
    run.add_argument("--save", action="store_true", help="take a snapshot at the end and print its name")
    run.add_argument("command", nargs=argparse.REMAINDER, help="the command to run")
    fork = _client(group, "fork", "start copies of a sandbox as it is now", _fork)
    fork.add_argument("id")
    fork.add_argument("-n", type=int, default=1)
    save = _client(group, "snapshot", "write a sandbox to the server's disk", _snapshot)
    save.add_argument("id")
    save.add_argument("--full", action="store_true", help="with the memory, where the backend can")
    _client(group, "list", "list sandboxes that run, and those that were lost", _list)
    remove = _client(group, "rm", "end sandboxes, or delete snapshots", _rm)
    remove.add_argument("id", nargs="*")
    remove.add_argument("--label", default=None, metavar="KEY=VALUE", help="end all that carry this label")
    _client(
        group, "logs", "show the commands of a sandbox, and the ends of their output", _logs
    ).add_argument("id")


def _add_servers(group: Any) -> None:
    serve = group.add_parser(
        "serve", help="run the server, which places sandboxes on nodes, its own or others"
    )
    serve.add_argument("--state", type=Path, default=STATE)
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8070, help="0 takes a free one")
    serve.add_argument("--node", action="append", default=[], metavar="URL", help="a node elsewhere")
    serve.add_argument(
        "--node-key-file",
        type=Path,
        default=None,
        help="a file with the key of those nodes (or OSTINATO_NODE_KEY)",
    )
    serve.add_argument("--backend", default="auto", help="the backend of the node on this machine")
    serve.add_argument(
        "--pool", action="append", default=[], metavar="TEMPLATE=N", help="keep N sandboxes ready"
    )
    serve.add_argument(
        "--memory-overcommit", type=float, default=1.0, help="how many times over memory is reserved"
    )
    serve.add_argument(
        "--cpu-limit",
        type=float,
        default=0.85,
        help="busy share of the CPU from which on nodes refuse; 2: never",
    )
    serve.set_defaults(run=_serve)
    node = group.add_parser(
        "node", help="run a node of a fleet, on which a server elsewhere places sandboxes"
    )
    node.add_argument("--state", type=Path, default=STATE / "node")
    node.add_argument("--templates", type=Path, default=None)
    node.add_argument("--backend", default="auto")
    node.add_argument("--host", default="127.0.0.1")
    node.add_argument("--port", type=int, default=0, help="0 takes a free one")
    node.add_argument("--fd", type=int, default=None, help=argparse.SUPPRESS)
    node.add_argument("--name", default="local")
    node.set_defaults(run=_node)


def _client(group: Any, name: str, help: str, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=help)
    parser.add_argument("--state", type=Path, default=STATE, help="the server's state directory")
    parser.add_argument("--url", default=os.environ.get("OSTINATO_SANDBOX_URL", ""))
    parser.add_argument(
        "--key-file", type=Path, default=None, help="a file with the server's key (or OSTINATO_SANDBOX_KEY)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda options: _with_client(command, options))
    return parser


def _serve(options: argparse.Namespace) -> int:
    from ostinato.fleet.scheduler.node import Overcommit
    from ostinato.fleet.server.serve import FrontConfig, run, serve_front

    try:
        config = FrontConfig(
            state=options.state,
            host=options.host,
            port=options.port,
            nodes=dict.fromkeys(options.node, secret(options.node_key_file, "OSTINATO_NODE_KEY")),
            backend=options.backend,
            overcommit=Overcommit(memory=options.memory_overcommit),
            cpu_limit=options.cpu_limit,
            pools={name: int(ready) for name, ready in map(_pair, options.pool)},
        )
    except (ValueError, ConfigError) as error:
        return _wrong(str(error))
    return run(serve_front(config))


def _node(options: argparse.Namespace) -> int:
    from ostinato.fleet.server.serve import NodeConfig, run, serve_node

    names = ("state", "templates", "backend", "host", "port", "fd", "name")
    return run(serve_node(NodeConfig(**{name: getattr(options, name) for name in names})))


def _with_client(command: Command, options: argparse.Namespace) -> int:
    from ostinato.fleet.client.client import SandboxClient
    from ostinato.sandbox.base import SandboxError

    async def call(url: str, key: str) -> int:
        client = SandboxClient(url, key)
        try:
            return await command(client, options)
        finally:
            await client.aclose()

    try:
        return asyncio.run(call(*_where(options)))
    except (SandboxError, ConfigError, OSError, ValueError) as error:
        return _wrong(str(error))


def _where(options: argparse.Namespace) -> tuple[str, str]:
    """Return address and key from the options, or as the server left them. Raises ValueError."""
    address, key = options.state / "server.json", options.state / "key"
    if not options.url and not address.exists():
        raise ValueError(f"no server runs on {options.state}: `ostinato sandbox serve` starts one")
    url = options.url or json.loads(address.read_text())["url"]
    return url, secret(options.key_file, "OSTINATO_SANDBOX_KEY") or (key.read_text() if key.exists() else "")


async def _run(client: "SandboxClient", options: argparse.Namespace) -> int:
    from ostinato.fleet.client.timed_run import TimedRun
    from ostinato.sandbox.base import DEFAULT_LIMITS, Spec

    if not options.command:
        raise ValueError("say what to run: ostinato sandbox run -- COMMAND")
    words = options.command[1:] if options.command[0] == "--" else options.command
    spec = Spec(repo=options.repo, limits=DEFAULT_LIMITS, labels=dict(map(_pair, options.label)))
    session = TimedRun(client, spec, options.template, options.timeout)
    sandbox = await session.start()
    try:
        result = await session.run(sandbox, _line(words), sys.stdout.buffer)
        saved = await session.save(sandbox) if options.save else None
    finally:
        if not options.keep:
            await sandbox.destroy()
    summary = {"id": sandbox.id, "exit_code": result.exit_code, "snapshot": saved, **session.spent}
    _show(summary, session.spent, as_json=options.json)
    return DONE if result.exit_code == 0 else FAILED


def _line(words: Sequence[str]) -> str:
    """Return one word as a line for the shell, several as a command with arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _show(summary: dict[str, Any], spent: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))  # noqa: T201
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    console.print(picture(spent, console.width))
    for name in ("snapshot", "id"):
        if summary[name]:
            console.print(f"{name} {summary[name]}")


def picture(spent: dict[str, float], width: int) -> Any:
    """Return a bar as wide as the screen with a piece for each phase, and the time that each took.

    >>> str(picture({"placed": 0.001, "started": 0.003}, 8)).splitlines()
    ['████████', 'placed 1 ms  started 3 ms']
    """
    from rich.text import Text

    colours = dict(zip(PHASES, ("blue", "cyan", "green", "magenta"), strict=True))
    whole, bar, legend = sum(spent.values()) or 1.0, Text(), Text()
    drawn, passed = 0, 0.0
    for name, seconds in spent.items():
        passed += seconds
        upto = round(width * passed / whole)
        bar.append("█" * (upto - drawn), style=colours[name])
        legend.append(f"{name} {seconds * 1000:.0f} ms  ", style=colours[name])
        drawn = upto
    legend.rstrip()
    return bar.append("\n").append(legend)


async def _fork(client: "SandboxClient", options: argparse.Namespace) -> int:
    forks = await client.call("POST", f"/sandboxes/{options.id}/fork", {"count": options.n})
    failed = [each["error"]["message"] for each in forks if "error" in each]
    for each in forks:
        if "sandbox" in each:
            print(each["sandbox"]["sandboxID"])  # noqa: T201
    for message in failed:
        print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return FAILED if failed else DONE


async def _snapshot(client: "SandboxClient", options: argparse.Namespace) -> int:
    taken = await client.call("POST", f"/sandboxes/{options.id}/snapshots", {"memory": options.full})
    print(json.dumps(taken) if options.json else taken["snapshotID"])  # noqa: T201
    return DONE


async def _list(client: "SandboxClient", options: argparse.Namespace) -> int:
    running, lost = await client.call("GET", "/sandboxes"), await client.call("GET", "/lost")
    if options.json:
        print(json.dumps({"sandboxes": running, "lost": lost}))  # noqa: T201
        return DONE
    for each in running:
        left_s = each["ostinato"]["endAt"] - time.time()
        labels = " ".join(f"{name}={value}" for name, value in each["metadata"].items())
        short = each["templateID"][:17]
        print(f"{each['sandboxID']}  {each['state']}  {left_s:.0f} s left  {short}  {labels}".rstrip())  # noqa: T201
    for name, why in lost.items():
        print(f"{name}  lost: {why}")  # noqa: T201
    return DONE


async def _rm(client: "SandboxClient", options: argparse.Namespace) -> int:
    from ostinato.fleet.client.client import GoneError

    if options.label:
        label, value = _pair(options.label)
        swept = await client.call("POST", "/sweep", {"label": label, "value": value})
        print("\n".join(swept["ended"]))  # noqa: T201
    for name in options.id:
        try:
            await client.call("DELETE", f"/sandboxes/{name}")
        except GoneError:
            await client.call("DELETE", f"/templates/{name}")
    return DONE


async def _logs(client: "SandboxClient", options: argparse.Namespace) -> int:
    logs = await client.call("GET", f"/sandboxes/{options.id}/logs")
    if options.json:
        print(json.dumps(logs))  # noqa: T201
        return DONE
    for each in logs["logs"]:
        print(f"{each['timestamp'][:19]} {each['line'].rstrip()}")  # noqa: T201
    return DONE


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return name, value


def _wrong(message: str) -> int:
    print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
