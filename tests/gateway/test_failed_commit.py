"""A commit fails while other turns of the session are under way: what was acknowledged is neither lost nor
doubled.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import KEY, Script

from ostinato.store import Store, StoreError
from ostinato.train.samples import samples_of
from ostinato.types import GenerateRequest, Turn

GO = [{"role": "user", "content": "go"}]


class Disk:
    """A replacement of the store's `record`, which fails or waits once for each turn that is named."""

    def __init__(self, store: Store) -> None:
        self._record = store.record
        self.fails: set[int] = set()
        self.waits: dict[int, threading.Event] = {}

    def __call__(self, turns: Sequence[Turn], *rows: Any) -> None:
        for turn in turns:
            if (gate := self.waits.pop(turn.index, None)) is not None:
                assert gate.wait(60)
        if bad := self.fails & {turn.index for turn in turns}:
            if len(turns) == 1:
                self.fails -= bad
            raise StoreError("the disk is full")
        self._record(turns, *rows)


class Slow(Script):
    """Make the engine hold prompts with the word `slow` until they are released."""

    async def __call__(self, request: GenerateRequest) -> tuple[int, ...]:
        if "slow" in self.renderer.tokenizer.decode(request.prompt_ids[-40:]):
            self.reached.set()
            await asyncio.wait_for(self.released.wait(), 300)
        return await super().__call__(request)


@pytest.fixture
def script(renderer) -> Slow:
    made = Slow(renderer)
    made.reached, made.released = asyncio.Event(), asyncio.Event()
    return made


@pytest.fixture
def disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(store)
    monkeypatch.setattr(store, "record", disk)
    return disk


class Client:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = http, url

    async def ask(self, *words: str) -> tuple[int, str]:
        """Return the status of a request that continues the session, and the id of its turn."""
        said = [{"role": "assistant", "content": "done"}, {"role": "user", "content": " ".join(words)}]
        body = {"model": "ostinato", "messages": [*GO, *(said if words else [])], "max_tokens": 50}
        async with self._http.post(f"{self._url}/v1/chat/completions", json=body) as response:
            told = (await response.json()).get("ostinato", {})
            return response.status, f"{told.get('session')}/{told.get('turn')}"


@pytest.fixture
async def client(gateway: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {KEY}", "X-Session-Id": "s1"}
    async with aiohttp.ClientSession(headers=headers) as http:
        yield Client(http, gateway)


async def test_a_segment_that_is_being_extended_is_not_extended_again(
    client: Client, script: Slow, disk: Disk, store: Store
) -> None:
    assert await client.ask() == (200, "s1/0")
    slow = asyncio.create_task(client.ask("slow"))
    await script.reached.wait()
    disk.fails = {2}
    assert (await client.ask("other"))[0] == 503
    status, third = await client.ask("third")
    script.released.set()
    assert status == 200
    assert (await slow)[0] == 200
    fourth = await client.ask("fourth")
    turns = store.turns("s1")
    assert {turn.id for turn in turns} == {"s1/0", (await slow)[1], third, fourth[1]}
    assert len(samples_of(turns, 1.0)) == len({turn.segment for turn in turns})


async def test_a_turn_that_waits_for_the_disk_keeps_its_index_and_segment(
    client: Client, script: Slow, disk: Disk, store: Store
) -> None:
    assert await client.ask() == (200, "s1/0")
    slow = asyncio.create_task(client.ask("slow"))
    await script.reached.wait()
    failing, late = threading.Event(), threading.Event()
    disk.fails, disk.waits = {2}, {2: failing, 1: late}
    refused = asyncio.create_task(client.ask("other"))
    while disk.waits.keys() == {1, 2}:
        await asyncio.sleep(0.01)
    script.released.set()
    while len(script.asked) < 3:
        await asyncio.sleep(0.01)
    failing.set()
    assert (await refused)[0] == 503
    third = asyncio.create_task(client.ask("third"))
    while len(script.asked) < 4:
        await asyncio.sleep(0.01)
    late.set()
    answers = [await slow, await third, await client.ask("fourth")]
    assert [status for status, _ in answers] == [200] * 3
    turns = store.turns("s1")
    assert {turn.id for turn in turns} == {"s1/0", *(id_ for _, id_ in answers)} and len(turns) == 4
    assert len(samples_of(turns, 1.0)) == len({turn.segment for turn in turns})


async def test_the_turn_that_failed_may_be_tried_again(client: Client, disk: Disk, store: Store) -> None:
    assert await client.ask() == (200, "s1/0")
    disk.fails = {1}
    assert (await client.ask("other"))[0] == 503
    assert await client.ask("other") == (200, "s1/1")
    assert [turn.segment for turn in store.turns("s1")] == [0, 0]
