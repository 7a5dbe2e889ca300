"""A sandbox whose start or end got no response is ended once the server responds again.

Covers fleet/client/unconfirmed.py, fleet/client/backend.py and fleet/client/process.py.
"""

import asyncio
from pathlib import Path

import pytest

from ostinato.fleet.client.backend import RemoteBackend
from ostinato.fleet.client.client import RefusalError, SandboxClient
from ostinato.fleet.client.unconfirmed import UnconfirmedSandboxes
from ostinato.sandbox import SandboxError, Spec

NOBODY = "http://127.0.0.1:1"


async def names(client: SandboxClient) -> list[str]:
    return [each["sandboxID"] for each in await client.call("GET", "/sandboxes")]


async def test_an_end_without_a_response_is_repeated_before_the_next_start(
    node: tuple[str, str], repo: Path
) -> None:
    backend = await RemoteBackend.connect(*node)
    client = backend.unconfirmed._client
    sandbox = await backend.start(Spec(repo=repo))
    client.url, url = NOBODY, client.url
    with pytest.raises(SandboxError, match="did not respond to DELETE"):
        await sandbox.destroy()
    client.url = url
    assert sandbox.id in await names(client)
    other = await backend.create(Spec(repo=repo))
    assert sandbox.id not in await names(client)
    await other.destroy()
    await backend.aclose()


async def test_a_cancelled_start_is_ended(node: tuple[str, str], repo: Path) -> None:
    backend = await RemoteBackend.connect(*node)
    client = backend.unconfirmed._client
    before = await names(client)
    starting = asyncio.create_task(backend.create(Spec(repo=repo)))
    while await names(client) == before and not starting.done():
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await backend.aclose()
    again = SandboxClient(*node)
    assert await names(again) == before
    await again.aclose()


async def test_a_refusal_counts_as_a_response(node: tuple[str, str]) -> None:
    client = SandboxClient(NOBODY, node[1])
    unconfirmed = UnconfirmedSandboxes(client)
    with pytest.raises(RefusalError), unconfirmed.tracking("ifull"):
        raise RefusalError("no room", 1.0)
    assert await unconfirmed.end_all() == []
    with pytest.raises(ZeroDivisionError), unconfirmed.tracking("ilost"):
        1 / 0  # noqa: B018
    assert len(await unconfirmed.end_all()) == 1
    await client.aclose()
