"""Floods of a front and its node by a client that has a key: they are refused and cost little memory."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.fleet.server.test_fleet import client, create

from ostinato.fleet.client.client import SandboxClient, to

__all__ = ["client"]
FLOOD_MB = 150
MOST_MB = 50


def peaks(state: Path) -> dict[int, int]:
    """Return the most memory in MB that the front and its node have ever had, by process id."""
    peak_mb = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            peak = re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text())
        except OSError:
            continue
        if str(state).encode() in words and peak is not None:
            peak_mb[int(folder.name)] = int(peak[1]) // 1024
    return peak_mb


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
    client: SandboxClient, state: Path, method: str, path: str
) -> None:
    sandbox = await create(client)
    session = await client.session()
    before = peaks(state)
    assert len(before) >= 2
    headers = {**to(sandbox), "Content-Type": "application/json"}
    try:
        url = client.url + path.format(id=sandbox)
        async with session.request(method, url, data=flood(), headers=headers) as response:
            body = await response.read()
            refused = 400 <= response.status < 500
            assert refused or (response.status == 200 and b'"error"' in body), body
    except aiohttp.ClientError:
        assert (
            path != "/templates/tree-00"
        )  # a template may be as large as this; the other calls are cut off in the middle
    after = peaks(state)
    most = 2 * MOST_MB if path == "/exams" else MOST_MB
    assert {pid: after[pid] - before[pid] for pid in before if after[pid] - before[pid] > most} == {}
    await client.call("DELETE", f"/sandboxes/{sandbox}")
