"""`ostinato code`: the agent at work in a person's git repository, shown as it happens."""

import asyncio
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax

from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import GatewayClient, GatewayRefused, GatewayUnavailable, Reply
from ostinato.harness.conversation import Call, Edit, Outcome
from ostinato.harness.execute import Observation
from ostinato.harness.git import GitError, Snapshots, worktree
from ostinato.harness.users import SilentUser, TerminalUser, User
from ostinato.sandbox.base import Limits, SandboxError
from ostinato.sandbox.process import ProcessBackend
from ostinato.types import Ending, Signal, SignalKind, new_id

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
PEOPLE = HarnessConfig(
    max_turns=50, max_tokens=2048, max_context=32_000, temperature=0.3, command_timeout_s=600.0
)
"""A person waits longer than practice does and wants the likely answer, not a varied one."""
LIMITS = Limits(wall_s=120.0)
PATIENCE_S = 10.0
SHOWN_LINES = 12
FAREWELL_S = 2.0


async def code(prompt: str, *, directory: Path, url: str, key: str, console: Console) -> int:
    """Runs one session in the repository around `directory`. Exit status: 0 done, 1 not, 2 wrong request."""
    if not key:
        return _wrong(console, "no API key: give --key or set OSTINATO_KEY")
    try:
        root = await worktree(directory)
    except GitError as error:
        return _wrong(console, str(error))
    snapshots = Snapshots(root)
    try:
        before = await snapshots.take()
        async with GatewayClient(url, key, patience_s=PATIENCE_S) as client:
            status = await _session(prompt, root, client, console)
        _show_diff(console, await snapshots.diff(before, await snapshots.take()))
        return status
    except (GatewayRefused, GitError) as error:
        return _wrong(console, str(error))
    finally:
        snapshots.close()


async def _session(prompt: str, root: Path, client: GatewayClient, console: Console) -> int:
    session_id = new_id()
    backend = ProcessBackend(in_place=True)
    user: User = TerminalUser(console) if sys.stdin.isatty() else SilentUser()
    try:
        sandbox = await backend.open(root, LIMITS)
        agent = Agent(client, sandbox, user, PEOPLE, observer=Screen(console))
        return _report(console, await agent.run(prompt, session_id=session_id))
    except asyncio.CancelledError:
        await _abandon(client, session_id)
        console.print("\ninterrupted", style="yellow")
        return INTERRUPTED
    except SandboxError as error:
        console.print(f"ostinato: {error}", style="red", markup=False)
        return FAILED
    finally:
        await backend.aclose()


class Screen:
    """Prints a session as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = False
        self._streamed = False

    def text(self, piece: str) -> None:
        self._in_text = True
        self._console.print(piece, end="", markup=False, highlight=False, soft_wrap=True)

    def reply(self, reply: Reply) -> None:
        self._end_text()

    def call(self, call: Call) -> None:
        subject = str(next(iter(call.meant.arguments.values()), ""))
        first, _, rest = subject.partition("\n")
        self._console.print(f"● {call.tool} {first}{' …' if rest else ''}", style="bold cyan", markup=False)

    def edited(self, call: Call, edit: Edit) -> None:
        """The diff is shown at the end."""

    def output(self, call: Call, piece: str) -> None:
        self._streamed = True
        self._console.print(piece, end="", style="dim", markup=False, highlight=False, soft_wrap=True)

    def result(self, call: Call, observation: Observation) -> None:
        streamed, self._streamed = self._streamed, False
        if streamed and observation.error is None:
            return
        lines = observation.text.split("\n")
        shown = lines[:SHOWN_LINES]
        if len(lines) > SHOWN_LINES:
            shown.append(f"… {len(lines) - SHOWN_LINES} more lines")
        style = "red" if observation.error else "dim"
        self._console.print("\n".join("  " + line for line in shown), style=style, markup=False)

    def _end_text(self) -> None:
        if self._in_text:
            self._console.print()
        self._in_text = False


def _report(console: Console, outcome: Outcome) -> int:
    console.print()
    if outcome.ending is Ending.FINISHED:
        return DONE
    reasons = {
        Ending.TURN_LIMIT: f"stopped after {outcome.turns} turns",
        Ending.TOKEN_LIMIT: "stopped: the conversation is as long as the model can read",
        Ending.BROKEN: "stopped: the model's tool calls could not be read",
        Ending.INFRASTRUCTURE: f"stopped: {outcome.reason}",
    }
    console.print(f"ostinato: {reasons[outcome.ending]}", style="red", markup=False)
    return FAILED


def _show_diff(console: Console, diff: str) -> None:
    if diff:
        console.print(Syntax(diff.rstrip("\n"), "diff", background_color="default", word_wrap=True))
    else:
        console.print("no file was changed", style="dim")


async def _abandon(client: GatewayClient, session_id: str) -> None:
    """Says that the person stopped it, if the gateway answers quickly: they want their prompt back."""
    signal = Signal(
        session_id=session_id,
        kind=SignalKind.ENDING,
        value=Ending.ABANDONED.value,
        observed_at=time.time(),
        id=f"{session_id}/ending",
    )
    try:
        await asyncio.wait_for(client.signal(signal), FAREWELL_S)
    except (TimeoutError, GatewayRefused, GatewayUnavailable):
        return


def _wrong(console: Console, message: str) -> int:
    console.print(f"ostinato: {message}", style="red", markup=False, soft_wrap=True)
    return WRONG
