"""The pages and the lineage over a record whose old sessions went for their age.

Covers store/retention.py, with tests/store/test_retention.py.
"""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fuzz.seen_store import FOREIGN, NOW, SILENT, STORY
from tests.dashboard.conftest import ADDRESS, TICKET

from ostinato.dashboard.access import Doorkeeper
from ostinato.dashboard.app import create_app
from ostinato.dashboard.pages import PAGES
from ostinato.dashboard.reading.base import RecordSource
from ostinato.deploy.lineage import lineage, tree
from ostinato.loop.dashboard.link import LoopLink
from ostinato.store.retention import expire
from ostinato.store.upkeep import DAY_S
from ostinato.types import Ending

ASKED = ({}, *({"id": id} for id in (STORY, SILENT, FOREIGN, "group/told", "e1")), {"version": "8"})


@pytest.fixture
def ended(reading: RecordSource) -> RecordSource:
    """The record, long after its live sessions have ended."""
    for id in (SILENT, FOREIGN):
        reading.store.end_session(id, Ending.FINISHED)
    reading.store.now = lambda: NOW + 130 * DAY_S
    return reading


async def seen(reading: RecordSource) -> dict[str, int]:
    """Return the status of every page, and of its JSON, for everything that it may be asked."""
    transport = httpx.ASGITransport(create_app(reading, Doorkeeper(reading.store, TICKET)))
    found: dict[str, int] = {}
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        await client.get("/enter", params={"ticket": TICKET})
        for page in PAGES:
            for asked in ASKED:
                for address in (page.address, page.json):
                    found[f"{address} {asked}"] = (await client.get(address, params=asked)).status_code
    return found


async def test_every_page_answers_as_before(ended: RecordSource, tmp_path: Path) -> None:
    looking = replace(ended, directory=tmp_path, loop=LoopLink())
    before = await seen(looking)
    assert expire(ended.store, NOW + 100 * DAY_S, uncollected=True).sessions == 3
    assert await seen(looking) == before and set(before.values()) == {200, 404}


async def test_a_session_says_that_it_went_for_its_age(
    operator: httpx.AsyncClient, ended: RecordSource
) -> None:
    expire(ended.store, NOW + 100 * DAY_S)
    page = (await operator.get("/session.json", params={"id": SILENT})).json()
    assert page["purged"]["by"] == "age of 30 days" and page["session"]["user"] == "expired"
    assert page["signals"] == page["rewards"] == []
    assert (await operator.get("/accounts.json")).json()["purges"] == [], "only what people purged is listed"


def test_the_lineage_says_what_was_removed_since(ended: RecordSource) -> None:
    version = max(row.version for row in ended.store.versions())
    before = tree(lineage(ended.store, version), sessions=99)
    expire(ended.store, NOW + 100 * DAY_S)
    after = tree(lineage(ended.store, version), sessions=99)
    assert "  removed since" in after and "removed since" not in before
    assert len(after.splitlines()) == len(before.splitlines())
