"""A sandbox whose start or end was not answered is ended once the server answers again."""

import asyncio
from pathlib import Path

import pytest

from ostinato.fleet.client.backend import RemoteBackend
from ostinato.fleet.client.client import Client, RefusalError
from ostinato.fleet.client.debts import Debts
from ostinato.sandbox import SandboxError, Spec

NOBODY = "http://127.0.0.1:1"


async def names(client: Client) -> list[str]:
    return [each["sandboxID"] for each in await client.call("GET", "/sandboxes")]


async def test_an_end_that_was_not_answered_comes_before_the_next_start(
    node: tuple[str, str], repo: Path
) -> None:
    backend = await RemoteBackend.connect(*node)
    client = backend.debts._client
    sandbox = await backend.start(Spec(repo=repo))
    client.url, url = NOBODY, client.url
    with pytest.raises(SandboxError, match="did not answer DELETE"):
        await sandbox.destroy()
    client.url = url
    assert sandbox.id in await names(client)
    other = await backend.create(Spec(repo=repo))
    assert sandbox.id not in await names(client)
    await other.destroy()
    await backend.aclose()


async def test_a_start_that_nobody_waited_for_is_ended(node: tuple[str, str], repo: Path) -> None:
    backend = await RemoteBackend.connect(*node)
    client = backend.debts._client
    before = await names(client)
    starting = asyncio.create_task(backend.create(Spec(repo=repo)))
    while await names(client) == before and not starting.done():
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await backend.aclose()
    again = Client(*node)
    assert await names(again) == before
    await again.aclose()


async def test_a_refusal_is_an_answer(node: tuple[str, str]) -> None:
    client = Client(NOBODY, node[1])
    debts = Debts(client)
    with pytest.raises(RefusalError), debts.owing("ifull"):
        raise RefusalError("no room", 1.0)
    assert await debts.settle() == []
    with pytest.raises(ZeroDivisionError), debts.owing("ilost"):
        1 / 0  # noqa: B018
    assert len(await debts.settle()) == 1
    await client.aclose()
