"""Who watches a command hears its end, whatever the others do."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from ostinato.fleet.server.running import WATCHER_CHUNKS, Command, Running
from ostinato.sandbox import ExecResult


class Speaking:
    """A command that says a few words and ends when it may."""

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


async def heard(watch: AsyncGenerator[bytes, None]) -> bytes:
    async with asyncio.timeout(20):
        return b"".join([chunk async for chunk in watch])


async def test_who_comes_while_another_is_slow_to_hear_of_the_end() -> None:
    process = Speaking(WATCHER_CHUNKS + 1)
    running = Running(1, Command(cmd="true"), process)
    slow = running.watch()
    await anext(slow)  # and no more: the rest and the end wait for it
    process.may_end.set()
    await asyncio.sleep(0.05)
    assert await heard(running.watch()) == b"0 1 2 "
    assert await heard(slow) == b"1 2 "
    assert (await running.wait()).exit_code == 0
    assert await heard(running.watch()) == b"0 1 2 "


async def test_who_watches_hears_all_and_a_late_one_what_is_kept() -> None:
    process = Speaking(5)
    running = Running(1, Command(cmd="true"), process)
    first, second = asyncio.create_task(heard(running.watch())), asyncio.create_task(heard(running.watch()))
    await asyncio.sleep(0.05)
    process.may_end.set()
    assert await first == await second == b"0 1 2 3 4 "


async def test_one_that_is_cancelled_before_it_began_has_no_more_to_say() -> None:
    running = Running(1, Command(cmd="true"), Speaking(1))
    running.cancel()
    await asyncio.sleep(0)
    assert await heard(running.watch()) == b""
