"""A real node of sandboxes and real copies of a chain on the fleet's page, and places that do not answer.

Covers dashboard/reading/fleet.py.
"""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from tests.dashboard.conftest import ADDRESS, TICKET
from tests.sandbox.conftest import served

from ostinato.dashboard.access import Doorkeeper, Viewer
from ostinato.dashboard.app import create_app
from ostinato.dashboard.reading import fleet
from ostinato.dashboard.reading.base import NodeAddress, RecordSource, RegionCopy
from ostinato.store import Objects
from ostinato.sync import Publisher
from ostinato.sync.mirror import Mirror

OPERATOR = Viewer(name="operator", admin=True)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAddress]:
    state = tmp_path_factory.mktemp("node")
    with served("node", state, "--backend", "process") as url:
        yield NodeAddress(url=url, key=(state / "key").read_text().strip())


def test_a_node_says_what_it_is(node: NodeAddress) -> None:
    (row,) = fleet.nodes_seen([node])
    assert row["trouble"] is None and row["backend"] == "process"
    assert row["cores"] >= 1 and row["memory_mb"] > 0 and 0 <= row["memory"] <= 1
    assert row["sandboxes"] == sum(each["count"] for each in row["states"])


def test_a_key_that_is_wrong_is_a_trouble_and_is_never_shown(node: NodeAddress) -> None:
    (row,) = fleet.nodes_seen([replace(node, key="wrong-key")])
    assert row["trouble"].startswith("no answer: status 401")
    assert "wrong-key" not in repr(row) + repr(replace(node, key="wrong-key"))


def test_silent_and_absent_places_take_no_longer_than_a_page_may(
    node: NodeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "PATIENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        places = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in (silent, unused)]
        rows = fleet.nodes_seen([*(NodeAddress(url=url) for url in places), node])
    assert [row["trouble"] is None for row in rows] == [False, False, True]


def test_a_region_lags_behind_the_record_until_it_is_mirrored(tmp_path: Path) -> None:
    source, target = (Objects.open(tmp_path / name) for name in ("source", "target"))
    publisher, mirror = Publisher(source), Mirror(source, target)
    publisher.anchor(0, {"w": torch.zeros(4)})
    mirror.step()
    publisher.delta(1, {"w": torch.ones(4)})
    regions = [
        RegionCopy(name="eu", objects=str(tmp_path / "target")),
        RegionCopy(name="?", objects="nothing://x"),
    ]
    behind, odd = fleet.regions_seen(regions, 1)
    assert (behind["head"], behind["lag"], behind["trouble"]) == (0, 1, None)
    assert odd["head"] is None and odd["lag"] is None and odd["trouble"]
    mirror.step()
    assert fleet.regions_seen(regions[:1], 1)[0]["lag"] == 0


async def test_the_page_shows_them(reading: RecordSource, node: NodeAddress, tmp_path: Path) -> None:
    Publisher(Objects.open(tmp_path / "eu")).anchor(0, {"w": torch.zeros(4)})
    seen = replace(
        reading,
        nodes=(node, NodeAddress(url="http://127.0.0.1:1/<b>")),
        regions=(RegionCopy(name="<i>eu", objects=str(tmp_path / "eu")),),
    )
    transport = httpx.ASGITransport(create_app(seen, Doorkeeper(seen.store, TICKET)))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as browser:
        await browser.get("/enter", params={"ticket": TICKET})
        page, told = (await browser.get("/fleet")).text, (await browser.get("/fleet.json")).json()
    assert "no answer: " in page and "Regions" in page and "&lt;i&gt;eu" in page and "<b>" not in page
    assert [each["trouble"] is None for each in told["nodes"]] == [True, False]
    assert told["regions"][0]["lag"] == told["newest"]


def test_without_any_the_page_says_how_to_name_them(reading: RecordSource) -> None:
    answer = fleet.seen(reading, OPERATOR, {})
    assert answer["nodes"] == answer["regions"] == []
