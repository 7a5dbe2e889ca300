"""Floods of a front and its node by somebody who has a key: they are refused and cost little memory."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.fleet.server.test_fleet import client, create

from ostinato.fleet.client.client import Client, to

__all__ = ["client"]
FLOOD_MB = 150
MOST_MB = 50


def peaks(state: Path) -> dict[int, int]:
    """The most memory that the front and its node have ever had, in MB."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "cmdline").read_bytes()
            peak = re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text())
        except OSError:
            continue
        if str(state).encode() in told and peak is not None:
            found[int(folder.name)] = int(peak[1]) // 1024
    return found


async def flood() -> AsyncIterator[bytes]:
    for _ in range(FLOOD_MB):
        yield bytes(2**20)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sandboxes"),
        ("POST", "/sandboxes/{id}/fork"),
        ("POST", "/exams"),
        ("PUT", "/templates/tree-00"),
        ("POST", "/files?path=a"),
        ("POST", "/process.Process/Start"),
        ("POST", "/process.Process/SendInput"),
        ("POST", "/filesystem.Filesystem/Stat"),
    ],
)
async def test_a_flood_is_refused_and_costs_little(
    client: Client, state: Path, method: str, path: str
) -> None:
    sandbox = await create(client)
    session = await client.session()
    before = peaks(state)
    assert len(before) >= 2
    headers = {**to(sandbox), "Content-Type": "application/json"}
    try:
        url = client.url + path.format(id=sandbox)
        async with session.request(method, url, data=flood(), headers=headers) as answer:
            told = await answer.read()
            assert 400 <= answer.status < 500 or (answer.status == 200 and b'"error"' in told), told
    except aiohttp.ClientError:
        assert path != "/templates/tree-00"  # which may be as large as this: others are cut in the middle
    after = peaks(state)
    most = 2 * MOST_MB if path == "/exams" else MOST_MB
    assert {pid: after[pid] - before[pid] for pid in before if after[pid] - before[pid] > most} == {}
    await client.call("DELETE", f"/sandboxes/{sandbox}")
