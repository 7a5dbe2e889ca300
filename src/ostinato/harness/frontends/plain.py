"""The frontend in plain lines, for a terminal without a full screen, a pipe, or a recording."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ostinato.harness.client import GatewayRefused
from ostinato.harness.conversation import Outcome
from ostinato.harness.frontends.screen import Screen, at_home
from ostinato.harness.frontends.slash_commands import QuitRequested, command, is_command
from ostinato.harness.lines import Lines
from ostinato.harness.workspace.workbench import Workbench
from ostinato.types import Ending

GREETING = "{place}, in {root}; /help lists commands, Ctrl-C stops the agent and once more leaves"


def verdict(outcome: Outcome) -> str:
    """Return the reason that the harness stopped the agent; empty when the agent finished by itself."""
    return {
        Ending.TURN_LIMIT: f"stopped after {outcome.turns} turns",
        Ending.TOKEN_LIMIT: f"stopped: {outcome.reason}; /new begins another conversation",
        Ending.BROKEN: "stopped: the model's tool calls could not be read",
        Ending.INFRASTRUCTURE: f"stopped: {outcome.reason}",
    }.get(outcome.ending, "")


class InterruptHandler:
    """The handler of Ctrl-C: it cancels the running work, or leaves the conversation when nothing runs."""

    def __init__(self) -> None:
        self._working: asyncio.Task[None] | None = None
        self._session = asyncio.current_task()

    @contextmanager
    def installed(self) -> Iterator[None]:
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
        """Run `work`. Return False when Ctrl-C cancelled it."""
        self._working = task = asyncio.ensure_future(work())
        await asyncio.wait((task,))
        self._working = None
        if task.cancelled():
            return False
        task.result()
        return True


async def converse(bench: Workbench, lines: Lines, screen: Screen, *, typed: bool) -> int:
    """Run prompts line by line until the end of input, /quit, or a Ctrl-C when nothing runs.

    Return the number of lines. With `typed`, a person at a terminal is greeted and sees a `>` before each
    line.
    """
    interrupts, line_count = InterruptHandler(), 0
    with interrupts.installed():
        if typed:
            screen.say(GREETING.format(place=bench.place, root=at_home(bench.root)), "dim")
        try:
            while (line := await _next_line(lines, screen, typed=typed)) is not None:
                line_count += 1
                if not await interrupts.cancellable(partial(_run_line, bench, screen, line)):
                    screen.say("interrupted; the session goes on", "yellow")
        except (QuitRequested, asyncio.CancelledError):
            screen.say("")
    return line_count


async def _next_line(lines: Lines, screen: Screen, *, typed: bool) -> str | None:
    if typed:
        screen.prompt("> ")
    return await lines.next()


async def _run_line(bench: Workbench, screen: Screen, line: str) -> None:
    if is_command(line):
        screen.say(await command(bench, line))
    elif line.strip():
        try:
            await work(bench, screen, line.removeprefix("/") if line.startswith("//") else line)
        except GatewayRefused as error:
            screen.say(f"ostinato: {error}", "red")


async def work(bench: Workbench, screen: Screen, text: str) -> Outcome:
    """Run one prompt and show the diff of its changes, also when it was stopped. Raise GatewayRefused."""
    before = await bench.checkpoints.take()
    try:
        outcome = await bench.prompt(text)
    finally:
        screen.diff(await bench.checkpoints.diff(before, await bench.checkpoints.take()))
    if verdict(outcome):
        screen.say(f"ostinato: {verdict(outcome)}", "red")
    screen.say(f"{bench.place} · {bench.fullness}", "dim")
    return outcome
