"""The commands `ostinato code` and `ostinato session`: their arguments and the functions that they call."""

import argparse
import asyncio
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ostinato.config import ConfigError, secret
from ostinato.web.joined import KEY, LOCAL, Joined, JoinedError, joined

if TYPE_CHECKING:
    from ostinato.harness.workspace.workbench import Options

Commands = argparse._SubParsersAction  # the type that add_subparsers returns
WRONG = 2
SUMMARIZING = "compact"
"""The profile of people: the tools of `core`, and a long session goes on from a summary of its own."""
URL_HELP = f"the gateway (default: OSTINATO_URL, else the team that this machine joined, else {LOCAL})"


def register(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add both to the command line."""
    _code(commands.add_parser("code"))
    _session(commands.add_parser("session"))


def _code(code: argparse.ArgumentParser) -> None:
    add = code.add_argument
    add("prompt", nargs="?", default=None, help="what to do; without it, a conversation")
    add("--directory", type=Path, default=Path(), help="the repository (default: here)")
    add("--url", help=URL_HELP)
    add("--key-file", type=Path, default=None, help="a file with the API key (or set OSTINATO_KEY)")
    add("--interactive", action="store_true", help="go on asking after the prompt")
    add("--plain", action="store_true", help="lines of text even where a full screen could be had")
    add(
        "--resume",
        nargs="?",
        const="",
        default=None,
        metavar="ID",
        help="go on with a session (the last one)",
    )
    add("--background", action="store_true", help="work on the prompt for hours, without this terminal")
    add("--here", action="store_true", help="with --background: in this folder, not in a copy of it")
    add("--undo", action="store_true", help="take back what the last request changed, and leave")
    text = "what the model is told and shown (default: what it was trained under, else compact)"
    add("--profile", default=None, help=text)
    for action in ("allow", "ask", "deny"):
        text = f"a rule, like 'bash: make *': {action} it; may be given again"
        add(f"--{action}", action="append", default=[], metavar="RULE", help=text)
    add("--auto", action="store_true", help="permit whatever would be asked; denials stay")
    code.set_defaults(run=_run_code)


def _run_code(options: argparse.Namespace) -> int:
    from rich.console import Console

    from ostinato.harness.frontends.code import CodeRequest, code

    try:
        chosen = _options(options)
    except (ConfigError, JoinedError, ValueError) as error:
        print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
        return WRONG
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that is not UTF-8 lacks some of the signs
        sys.stdout.reconfigure(errors="backslashreplace")
    if options.background or options.here:
        return _run_background(options, chosen)
    request = CodeRequest(
        prompt=options.prompt,
        interactive=options.interactive,
        plain=options.plain,
        resume=options.resume,
        undo=options.undo,
    )
    return asyncio.run(code(request, chosen, Console(highlight=False)))


def _run_background(options: argparse.Namespace, chosen: "Options") -> int:
    from rich.console import Console

    from ostinato.harness.frontends.background.run import Start, begin

    others = options.interactive or options.undo or options.resume is not None
    if not options.background or not options.prompt or others:
        text = "--background needs a prompt, and goes with no --interactive, --resume or --undo"
        print(f"ostinato: {text}; --here goes with --background alone", file=sys.stderr)  # noqa: T201
        return WRONG
    return begin(Start(prompt=options.prompt, here=options.here), chosen, Console(highlight=False))


def _options(options: argparse.Namespace) -> "Options":
    from dataclasses import replace

    from ostinato.harness.permissions import policy
    from ostinato.harness.permissions.rules import Action
    from ostinato.harness.profiles.profile import profile
    from ostinato.harness.workspace.workbench import PEOPLE, Options

    gateway = gateway_of(options)
    rules = [rule for action in Action for rule in policy.given(action, getattr(options, action.value))]
    return Options(
        directory=options.directory,
        url=gateway.url,
        key=gateway.key,
        config=replace(PEOPLE, profile=profile(options.profile or SUMMARIZING).name),
        fits_profile=options.profile is None,
        rules=tuple(rules),
        auto=options.auto,
    )


def gateway_of(options: argparse.Namespace) -> Joined:
    """Return the address and the key of the gateway that the flags name, or that is known here.

    Raises ConfigError and JoinedError.
    """
    known = joined(options.url)
    key = secret(options.key_file, KEY) or known.key
    return Joined(url=known.url or LOCAL, key=key)


def _session(sessions: argparse.ArgumentParser) -> None:
    commands = sessions.add_subparsers(required=True, metavar="COMMAND")
    _add_reader(commands, "list", "the sessions there are, the last one first", "list_sessions", named=False)
    show = _add_reader(commands, "show", "what was said and done in a session", "show")
    show.add_argument("--json", action="store_true", help="print every event, as one JSON object")
    _add_reader(commands, "replay", "a session as its terminal showed it", "replay")
    export = _add_reader(commands, "export", "a session in another format", "export")
    formats = "openai, atif, mini, agent-trace, jsonl, or one of a plug-in"
    export.add_argument("--format", required=True, help=f"the format to write: {formats}")


def _add_reader(
    commands: "Commands[argparse.ArgumentParser]", name: str, text: str, function: str, *, named: bool = True
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text)
    if named:
        text = "its id, or the beginning of it (default: the last one)"
        parser.add_argument("id", nargs="?", default="", help=text)
    parser.set_defaults(run=_reader(function))
    return parser


def _reader(function: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        from ostinato.harness.frontends import sessions
        from ostinato.harness.session_log import LogError

        try:
            status: int = getattr(sessions, function)(options)
        except LogError as error:
            print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
            return WRONG
        return status

    return run
