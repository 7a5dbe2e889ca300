"""The agent in lines of text: on a terminal without a full screen, in a pipe, in a recording."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ostinato.harness.client import GatewayRefused
from ostinato.harness.conversation import Outcome
from ostinato.harness.frontends.screen import Screen
from ostinato.harness.frontends.slash_commands import Leave, command, is_command
from ostinato.harness.lines import Lines
from ostinato.harness.workspace.workbench import Workbench
from ostinato.types import Ending

GREETING = "ostinato in {root}; /help lists commands, Ctrl-C stops the agent and once more leaves"


def verdict(outcome: Outcome) -> str:
    """Return why the agent stopped when it was not its own choice; else an empty text."""
    return {
        Ending.TURN_LIMIT: f"stopped after {outcome.turns} turns",
        Ending.TOKEN_LIMIT: f"stopped: {outcome.reason}; /new begins another conversation",
        Ending.BROKEN: "stopped: the model's tool calls could not be read",
        Ending.INFRASTRUCTURE: f"stopped: {outcome.reason}",
    }.get(outcome.ending, "")


class Interrupts:
    """Ctrl-C: the first cancels what is running, one when nothing runs leaves."""

    def __init__(self) -> None:
        self._working: asyncio.Task[None] | None = None
        self._session = asyncio.current_task()

    @contextmanager
    def caught(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def interrupt(self) -> None:
        working, self._working = self._working, None
        task = working or self._session
        if task is not None:
            task.cancel()

    async def cancellable(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `work` and return False when Ctrl-C cancelled it."""
        self._working = task = asyncio.ensure_future(work())
        await asyncio.wait((task,))
        self._working = None
        if task.cancelled():
            return False
        task.result()
        return True


async def converse(bench: Workbench, lines: Lines, screen: Screen, *, typed: bool) -> int:
    """Work on requests line by line until the last one, /quit, or a Ctrl-C with nothing to stop.

    Returns the number of lines. `typed`: a person is at the terminal, to be greeted and asked.
    """
    interrupts, taken = Interrupts(), 0
    with interrupts.caught():
        if typed:
            screen.say(GREETING.format(root=bench.root), "dim")
        try:
            while (line := await _asked(lines, screen, typed=typed)) is not None:
                taken += 1
                if not await interrupts.cancellable(partial(_take, bench, screen, line)):
                    screen.say("interrupted; the session goes on", "yellow")
        except (Leave, asyncio.CancelledError):
            screen.say("")
    return taken


async def _asked(lines: Lines, screen: Screen, *, typed: bool) -> str | None:
    if typed:
        screen.prompt("> ")
    return await lines.next()


async def _take(bench: Workbench, screen: Screen, line: str) -> None:
    if is_command(line):
        screen.say(await command(bench, line))
    elif line.strip():
        try:
            await work(bench, screen, line.removeprefix("/") if line.startswith("//") else line)
        except GatewayRefused as error:
            screen.say(f"ostinato: {error}", "red")


async def work(bench: Workbench, screen: Screen, text: str) -> Outcome:
    """Work on a prompt and show the diff of its changes, also when it was stopped. Raises GatewayRefused."""
    before = await bench.checkpoints.take()
    try:
        outcome = await bench.prompt(text)
    finally:
        screen.diff(await bench.checkpoints.diff(before, await bench.checkpoints.take()))
    if verdict(outcome):
        screen.say(f"ostinato: {verdict(outcome)}", "red")
    screen.say(bench.fullness, "dim")
    return outcome
