"""Real copies of a chain on the page of engines, and engines that live, died, or are others.

Covers dashboard/reading/fleet.py, dashboard/reading/engines.py and dashboard/reading/now.py.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import torch
from tests.dashboard.conftest import ADDRESS, TICKET

from ostinato.dashboard.access import Doorkeeper, Viewer
from ostinato.dashboard.app import create_app
from ostinato.dashboard.pages import PAGES
from ostinato.dashboard.reading import engines, fleet, now
from ostinato.dashboard.reading.base import RecordSource, RegionCopy
from ostinato.store import Objects, Store
from ostinato.sync import Publisher
from ostinato.sync.mirror import Mirror
from ostinato.types import TEACHER_VERSION, Arm

OPERATOR = Viewer(name="operator", admin=True)


def test_silent_and_absent_places_take_no_longer_than_a_page_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "PATIENCE_S", 0.5)
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


@contextmanager
def engine(said: str, status: int = 200) -> Iterator[str]:
    """A server that says this on `/healthz`, and its address."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/healthz"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


DEAD = "http://127.0.0.1:9"
"""The port of `discard`, on which nothing of this machine listens."""


def set_arms(store: Store, *champion: str) -> None:
    arms = (("champion", 7, 0.9), ("own", 99, 0.1), ("teacher", TEACHER_VERSION, 0.0))
    store.set_arms(
        [
            Arm(name=name, version=version, share=share, engines=champion if name == "champion" else (DEAD,))
            for name, version, share in arms
        ]
    )


def test_a_dead_engine_is_shown_as_dead(reading: RecordSource) -> None:
    set_arms(reading.store, DEAD)
    seen = now.seen(reading, OPERATOR, {})
    champion, own = seen["arms"]
    assert seen["headline"].startswith("Nobody is served now: no engine answers.") and not seen["alarms"]
    assert champion["alive"] == 0 and champion["last_at"] > 0 and own["last_at"] is None
    assert [arm["name"] for arm in seen["gone"]] == ["teacher"]
    assert "no answer: " in fleet.seen(reading, OPERATOR, {})["arms"][0]["engines"][0]["trouble"]


@pytest.mark.parametrize(
    ("said", "status", "alive", "alarm"),
    [
        ('{"version": 7}', 200, 1, "Arm own gets 10% of the users and none of its engines answers."),
        ('{"version": 6}', 200, 1, "serves version 6, and arm champion credits it as version 7."),
        ('{"version": 7}', 503, 0, ""),
        ("<h1>Apache</h1>", 200, 0, ""),
        ("[7]", 200, 0, ""),
    ],
)
def test_an_engine_speaks_for_itself(
    reading: RecordSource, said: str, status: int, alive: int, alarm: str
) -> None:
    with engine(said, status) as url:
        set_arms(reading.store, url, DEAD)
        seen = now.seen(reading, OPERATOR, {})
    assert seen["arms"][0]["alive"] == alive
    assert any(alarm in each for each in seen["alarms"]) if alarm else not seen["alarms"]
    assert seen["headline"].startswith("Nobody") == (alive == 0)


async def test_no_version_on_a_page_leads_nowhere(operator: httpx.AsyncClient, reading: RecordSource) -> None:
    set_arms(reading.store, DEAD)
    links = set[str]()
    for page in PAGES:
        text = (await operator.get(page.address)).text
        links |= set(re.findall(r'href="(/version[?][^"]*)"', text))
    assert len(links) > 2
    assert not [link for link in links if (await operator.get(link)).status_code != 200]
    page = (await operator.get("/")).text
    assert "the teacher" in page and "99" in page and "dead, last seen" in page
