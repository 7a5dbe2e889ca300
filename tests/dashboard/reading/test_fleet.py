"""Real copies of a chain on the page of engines, and places that do not answer.

Covers dashboard/reading/fleet.py.
"""

import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from tests.dashboard.conftest import ADDRESS, TICKET

from ostinato.dashboard.access import Doorkeeper, Viewer
from ostinato.dashboard.app import create_app
from ostinato.dashboard.reading import fleet
from ostinato.dashboard.reading.base import RecordSource, RegionCopy
from ostinato.store import Objects
from ostinato.sync import Publisher
from ostinato.sync.mirror import Mirror

OPERATOR = Viewer(name="operator", admin=True)


def test_silent_and_absent_places_take_no_longer_than_a_page_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "PATIENCE_S", 0.5)
    answered = threading.Event()
    monkeypatch.setattr(fleet, "_region", lambda place: answered.wait(300.0))
    (row,) = fleet.regions_seen([RegionCopy(name="silent", objects=str(tmp_path))], 1)
    answered.set()
    assert row["trouble"] == "no answer within 0.5 s" and row["head"] is None and row["lag"] is None


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


async def test_the_page_shows_them(reading: RecordSource, tmp_path: Path) -> None:
    Publisher(Objects.open(tmp_path / "eu")).anchor(0, {"w": torch.zeros(4)})
    seen = replace(
        reading,
        regions=(
            RegionCopy(name="<i>eu", objects=str(tmp_path / "eu")),
            RegionCopy(name="us", objects="nothing://<b>"),
        ),
    )
    transport = httpx.ASGITransport(create_app(seen, Doorkeeper(seen.store, TICKET)))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as browser:
        await browser.get("/enter", params={"ticket": TICKET})
        page, told = (await browser.get("/fleet")).text, (await browser.get("/fleet.json")).json()
    assert "no answer: " in page and "Regions" in page and "&lt;i&gt;eu" in page and "<b>" not in page
    assert [each["trouble"] is None for each in told["regions"]] == [True, False]
    assert told["regions"][0]["lag"] == told["newest"]


def test_without_any_the_page_says_how_to_name_them(reading: RecordSource) -> None:
    answer = fleet.seen(reading, OPERATOR, {})
    assert answer["regions"] == []
