"""Every watcher of a command sees its end, whatever the other watchers do."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from ostinato.fleet.server.commands import WATCHER_CHUNKS, Command, RunningCommand
from ostinato.sandbox import ExecResult


class Speaking:
    """A command that writes a few words and ends when the test lets it."""

    def __init__(self, words: int) -> None:
        self._words = words
        self.may_end = asyncio.Event()

    async def output(self) -> AsyncIterator[bytes]:
        for number in range(self._words):
            yield b"%d " % number
        await self.may_end.wait()

    async def send(self, data: bytes) -> None: ...

    async def signal(self, number: int) -> None: ...

    async def wait(self) -> ExecResult:
        return ExecResult(exit_code=0, output="", timed_out=False, duration_s=0.0)


async def output_of(watch: AsyncGenerator[bytes, None]) -> bytes:
    async with asyncio.timeout(20):
        return b"".join([chunk async for chunk in watch])


async def test_a_watcher_that_comes_while_another_is_slow_at_the_end() -> None:
    process = Speaking(WATCHER_CHUNKS + 1)
    running = RunningCommand(1, Command(cmd="true"), process)
    slow = running.watch()
    await anext(slow)  # and no more: the rest and the end wait for it
    process.may_end.set()
    await asyncio.sleep(0.05)
    assert await output_of(running.watch()) == b"0 1 2 "
    assert await output_of(slow) == b"1 2 "
    assert (await running.wait()).exit_code == 0
    assert await output_of(running.watch()) == b"0 1 2 "


async def test_watchers_get_all_output() -> None:
    process = Speaking(5)
    running = RunningCommand(1, Command(cmd="true"), process)
    first, second = (
        asyncio.create_task(output_of(running.watch())),
        asyncio.create_task(output_of(running.watch())),
    )
    await asyncio.sleep(0.05)
    process.may_end.set()
    assert await first == await second == b"0 1 2 3 4 "


async def test_a_command_that_is_cancelled_before_it_began_has_no_output() -> None:
    running = RunningCommand(1, Command(cmd="true"), Speaking(1))
    running.cancel()
    await asyncio.sleep(0)
    assert await output_of(running.watch()) == b""
