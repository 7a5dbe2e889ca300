"""The command `ostinato code`: the agent in a person's git repository, for one prompt or a conversation."""

import asyncio
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from rich.console import Console

from ostinato.config import ConfigError
from ostinato.harness.client import GatewayRefused
from ostinato.harness.frontends import plain
from ostinato.harness.frontends.screen import Screen
from ostinato.harness.frontends.slash_commands import command
from ostinato.harness.git import GitError
from ostinato.harness.lines import Lines
from ostinato.harness.session_log import LogError
from ostinato.harness.users import SilentUser, TerminalUser, User
from ostinato.harness.workspace.workbench import Options, Workbench
from ostinato.sandbox.base import SandboxError
from ostinato.types import Ending
from ostinato.web.joined import NO_KEY

NO_TEXTUAL = "in plain lines, since the full screen needs textual: pip install -e '.[code]'"
NOTHING = "nothing to do: give a prompt, or start it in a terminal"
DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRequest:
    """The request of a command line: a prompt, a conversation, or an undo.

    >>> CodeRequest(prompt="calc.py is off").interactive
    False
    """

    prompt: str | None = None
    interactive: bool = False
    """Ask for further prompts after the first."""
    plain: bool = False
    """Use plain lines even where a full screen is possible."""
    resume: str | None = None
    """The id of a session to continue; the last session when empty."""
    undo: bool = False
    """Take back the changes of the last prompt and exit."""


async def code(request: CodeRequest, options: Options, console: Console) -> int:
    """Return the exit status: 0 done, 1 not done, 2 wrong request, 130 interrupted."""
    converses = not request.undo and (request.interactive or request.prompt is None)
    if not options.key and not request.undo:
        return _refuse(
            console,
            NO_KEY,
        )
    try:
        if converses and not request.plain and _is_typed() and console.is_terminal:
            if find_spec("textual") is not None:
                from ostinato.harness.frontends.terminal.app import full_screen

                status, farewell = await full_screen(request.prompt, request.resume, options)
                if farewell:
                    console.print(farewell, style="dim", markup=False)
                return status
            console.print(NO_TEXTUAL, style="yellow", markup=False)
        return await _in_lines(request, options, console, converses=converses)
    except (GatewayRefused, GitError, ConfigError, LogError) as error:
        return _refuse(console, str(error))
    except SandboxError as error:
        console.print(f"ostinato: {error}", style="red", markup=False)
        return FAILED


async def _in_lines(request: CodeRequest, options: Options, console: Console, *, converses: bool) -> int:
    lines, screen = Lines(sys.stdin), Screen(console)
    user: User = TerminalUser(console, lines) if _is_typed() else SilentUser()
    bench = await Workbench.open(options, user, screen, works=not request.undo)
    _show_notices(bench, screen)
    status = DONE
    try:
        if request.resume is not None or request.undo:
            await bench.resume(request.resume or "")
        if request.undo:
            screen.say(await command(bench, "/undo"))
            return DONE
        if request.prompt is not None:
            status = await _run_prompt(bench, screen, request.prompt)
        if converses and status != INTERRUPTED:
            line_count = await plain.converse(bench, lines, screen, typed=_is_typed())
            if not line_count and request.prompt is None and not _is_typed():
                return _refuse(console, NOTHING)
        return status
    finally:
        await asyncio.shield(bench.close())  # a second Ctrl-C must not stop the session from being closed
        _show_notices(bench, screen)
        if bench.farewell and (status == INTERRUPTED or (converses and _is_typed())):
            screen.say(bench.farewell, "dim")


def _show_notices(bench: Workbench, screen: Screen) -> None:
    for notice in bench.notices:
        screen.say(f"ostinato: {notice}", "yellow")
    bench.notices.clear()


async def _run_prompt(bench: Workbench, screen: Screen, prompt: str) -> int:
    try:
        outcome = await plain.work(bench, screen, prompt)
    except asyncio.CancelledError:
        screen.say("interrupted", "yellow")
        return INTERRUPTED
    return DONE if outcome.ending is Ending.FINISHED else FAILED


def _is_typed() -> bool:
    """Return true when standard input is a terminal. A process may have no standard input at all."""
    return sys.stdin is not None and sys.stdin.isatty()


def _refuse(console: Console, message: str) -> int:
    console.print(f"ostinato: {message}", style="red", markup=False, soft_wrap=True)
    return WRONG
