"""The pages over a record on PostgreSQL show what they show over the same record in a SQLite file."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fuzz.postgres import PostgresServer
from fuzz.seen_history import grow
from fuzz.seen_store import FOREIGN, NOW, SILENT, STORY, fill
from tests.dashboard.conftest import ADDRESS, TICKET
from tests.databases import on

from ostinato.dashboard.access import Doorkeeper
from ostinato.dashboard.app import create_app
from ostinato.dashboard.pages import PAGES
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.loop.dashboard.link import LoopLink
from ostinato.model.families import HermesRenderer
from ostinato.store import Store

pytestmark = pytest.mark.postgres
ASKED = ({}, *({"id": id} for id in (STORY, SILENT, FOREIGN, "group/told", "e1")), {"version": "8"})
BY_CHANCE = {"at", "created_at", "signals"}


@pytest.fixture(scope="module")
def served(postgres: PostgresServer, renderer: HermesRenderer) -> Iterator[str]:
    """A database with the same history as the run folder `grown`."""
    with on(postgres)() as url:
        store = Store.open(url)
        fill(store, renderer)
        grow(store, renderer)
        store.close()
        yield url


def source(place: str, checkpoint: Path, directory: Path) -> RecordSource:
    return RecordSource(
        store=Store.open(place),
        lexicon=Lexicon.load(checkpoint),
        clock=lambda: NOW,
        name="grown",
        directory=directory,
        loop=LoopLink(),
    )


def alike(answer: object) -> object:
    """Return an answer without what differs between two records by chance: ids, times of today, rounding."""
    if isinstance(answer, dict):
        return {name: alike(value) for name, value in answer.items() if name not in BY_CHANCE}
    if isinstance(answer, list):
        return [alike(each) for each in answer]
    if isinstance(answer, float):
        return round(answer, 9)
    return "purged" if isinstance(answer, str) and answer.startswith("purged-") else answer


async def seen(reading: RecordSource) -> dict[str, tuple[int, object]]:
    """Return the JSON, or the status, of every page for everything that it may be asked."""
    transport = httpx.ASGITransport(create_app(reading, Doorkeeper(reading.store, TICKET)))
    found: dict[str, tuple[int, object]] = {}
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        await client.get("/enter", params={"ticket": TICKET})
        for page in PAGES:
            for asked in ASKED:
                answer = await client.get(page.json, params=asked)
                body = alike(answer.json()) if answer.status_code == 200 else answer.text
                found[f"{page.address} {asked}"] = (answer.status_code, body)
    return found


async def test_every_page_is_the_same_on_both(served: str, grown: Path, checkpoint: Path) -> None:
    file, server = source(str(grown / "store.db"), checkpoint, grown), source(served, checkpoint, grown)
    try:
        here, there = await seen(file), await seen(server)
    finally:
        file.close()
        server.close()
    assert {status for status, _ in there.values()} == {200, 404}
    assert {name for name in here if here[name] != there[name]} == set()
