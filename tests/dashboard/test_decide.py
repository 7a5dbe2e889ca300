"""The buttons: who may decide, what must be typed, and what is written down."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fuzz.seen_history import EXPERIMENT, FIRST, STEPS
from fuzz.seen_store import NOW
from tests.dashboard.conftest import ADDRESS, TICKET

from ostinato.dashboard.access import Doorkeeper
from ostinato.dashboard.app import create_app
from ostinato.dashboard.reading.base import RecordSource
from ostinato.loop.dashboard.link import LoopLink
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log

PAGE = f"/experiment?id={EXPERIMENT}"
CHALLENGER = FIRST + STEPS - 1


@pytest_asyncio.fixture
async def steered(grown: Path, tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Store]]:
    shutil.copy(grown / "store.db", tmp_path / "store.db")
    store = Store.open(tmp_path / "store.db")
    reading = RecordSource(store=store, lexicon=None, clock=lambda: NOW, loop=LoopLink())
    transport = httpx.ASGITransport(create_app(reading, Doorkeeper(store, TICKET)))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        await client.get("/enter", params={"ticket": TICKET})
        yield client, store
    store.close()


async def _form(client: httpx.AsyncClient, **fields: str) -> dict[str, str]:
    found = re.search(r'name="token" value="([^"]+)"', (await client.get(PAGE)).text)
    assert found is not None
    return {"token": found[1], "back": PAGE, "reason": "the users like it", **fields}


async def test_a_promotion_is_typed_and_written_down(steered: tuple[httpx.AsyncClient, Store]) -> None:
    client, store = steered
    form = await _form(client, word="promote", confirmed=f"Version {CHALLENGER}")
    done = await client.post("/decide", data=form)
    assert (done.status_code, done.headers["location"]) == (303, PAGE)
    entry = cycle_log(store)[-1]
    assert (entry.by, entry.action, entry.detail) == ("operator", CycleAction.PROMOTE, "the users like it")
    assert "the users like it" in (await client.get(PAGE)).text


async def test_a_roll_back_takes_the_traffic_at_once(steered: tuple[httpx.AsyncClient, Store]) -> None:
    client, store = steered
    await client.post(
        "/decide", data=await _form(client, word="roll_back", confirmed=f"version {CHALLENGER}")
    )
    assert [(arm.version, arm.share) for arm in store.arms()] == [(7, 1.0), (7, 0.0)]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"confirmed": "version 7"}, 400),
        ({"reason": " "}, 400),
        ({"word": "resume"}, 409),
        ({"word": "delete"}, 409),
        ({"token": "made up"}, 403),
        ({"back": "//evil.example"}, 303),
    ],
)
async def test_what_is_wrong_is_refused_and_nothing_is_logged(
    steered: tuple[httpx.AsyncClient, Store], change: dict[str, str], status: int
) -> None:
    client, store = steered
    before = len(cycle_log(store))
    form = await _form(client, word="pause", confirmed=f"version {CHALLENGER}")
    answer = await client.post("/decide", data=form | change)
    assert answer.status_code == status
    assert len(cycle_log(store)) - before == (status == 303)
    if status == 303:
        assert answer.headers["location"] == "/"


async def test_nobody_but_the_operator_decides(steered: tuple[httpx.AsyncClient, Store]) -> None:
    client, store = steered
    form = await _form(client, word="pause", confirmed=f"version {CHALLENGER}")
    client.cookies.clear()
    assert (await client.post("/decide", data=form)).status_code == 303  # to the door
    for key, status in (("key-of-acme", 403), ("key-of-all", 403)):  # a header carries no form's secret
        answer = await client.post("/decide", data=form, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == status
    evil = {"origin": "http://evil.example"}
    assert (await client.post("/decide", data=form, headers=evil)).status_code == 403
    assert cycle_log(store)[-1].action is CycleAction.ALARM
