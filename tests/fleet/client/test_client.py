"""A server that falls silent in the middle of a stream, and a reader that is slow."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ostinato.fleet.client import client
from ostinato.fleet.client.client import SandboxClient
from ostinato.fleet.protocol import connect
from ostinato.sandbox import SandboxError

MESSAGES, LARGE = 40, "x" * 20_000


async def talk(request: web.Request) -> web.StreamResponse:
    """Send many messages, and then nothing more or the end."""
    answer = web.StreamResponse(headers={"Content-Type": connect.STREAM})
    await answer.prepare(request)
    for number in range(MESSAGES):
        await answer.write(connect.pack({"number": number, "text": LARGE}))
    if request.path.endswith("Hangs"):
        await asyncio.sleep(30)
    await answer.write(connect.pack({}, connect.END))
    return answer


@pytest.fixture
async def caller(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxClient]:
    monkeypatch.setattr(client, "SILENCE_S", 0.3)
    app = web.Application()
    app.add_routes([web.post("/{name:.*}", talk)])
    async with TestServer(app) as server:
        made = SandboxClient(str(server.make_url("")), "key")
        yield made
        await made.aclose()


async def test_a_silent_stream_counts_as_broken(caller: SandboxClient) -> None:
    events = caller.stream("s", "Talks/Hangs", {})
    assert [(await anext(events))["number"] for _ in range(MESSAGES)] == list(range(MESSAGES))
    async with asyncio.timeout(10):
        with pytest.raises(SandboxError, match="broke off"):
            await anext(events)


async def test_a_slow_reader_does_not_count_as_silence(caller: SandboxClient) -> None:
    numbers = []
    async for each in caller.stream("s", "Talks/Ends", {}):
        if len(numbers) in (0, MESSAGES // 2):
            await asyncio.sleep(0.7)
        numbers.append(each["number"])
    assert numbers == list(range(MESSAGES))
