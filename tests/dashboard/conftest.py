"""A filled store, its tokenizer, and the pages over it, asked as a browser asks."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fuzz.seen_history import WEEK, grow
from fuzz.seen_session import teach_tokenizer
from fuzz.seen_store import NOW, fill
from tests.databases import postgres

from ostinato.dashboard.access import Doorkeeper
from ostinato.dashboard.app import create_app
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.reading.rewards import REPORT
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.loop.dashboard.link import LoopLink
from ostinato.model.families import HermesRenderer
from ostinato.store import Store

TICKET = "the-ticket"
ADDRESS = "http://127.0.0.1:8095"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("seen") / "start"
    teach_tokenizer(directory)
    return directory


@pytest.fixture(scope="session")
def renderer(checkpoint: Path) -> HermesRenderer:
    loaded = Lexicon.load(checkpoint)
    return HermesRenderer(loaded.tokenizer)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, renderer: HermesRenderer) -> Path:
    path = tmp_path_factory.mktemp("filled") / "store.db"
    store = Store.open(path)
    fill(store, renderer)
    store.close()
    return path


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory, filled: Path, renderer: HermesRenderer) -> Path:
    """A run folder whose store has a history: steps, a trial under way, words of people, a purge."""
    directory = tmp_path_factory.mktemp("grown")
    for part in filled.parent.iterdir():
        shutil.copy(part, directory / part.name)
    store = Store.open(directory / "store.db")
    grow(store, renderer)
    store.close()
    (directory / REPORT).write_text(json.dumps(WEEK))
    return directory


@pytest.fixture
def history(grown: Path, checkpoint: Path) -> Iterator[RecordSource]:
    """The record of the run folder, which the tests only read."""
    store = Store.open(grown / "store.db")
    lexicon = Lexicon.load(checkpoint)
    yield RecordSource(
        store=store, lexicon=lexicon, clock=lambda: NOW, name="grown", directory=grown, loop=LoopLink()
    )
    store.close()


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Iterator[Store]:
    """A copy of the filled store, which the test may change."""
    for part in filled.parent.iterdir():
        shutil.copy(part, tmp_path / part.name)
    store = Store.open(tmp_path / filled.name)
    yield store
    store.close()


@pytest.fixture
def reading(store: Store, checkpoint: Path) -> RecordSource:
    return RecordSource(store=store, lexicon=Lexicon.load(checkpoint), clock=lambda: NOW)


@pytest_asyncio.fixture
async def stranger(reading: RecordSource) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that was not let in."""
    transport = httpx.ASGITransport(create_app(reading, Doorkeeper(reading.store, TICKET)))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield client


@pytest_asyncio.fixture
async def operator(stranger: httpx.AsyncClient) -> httpx.AsyncClient:
    """A browser that came by the address which the command prints."""
    response = await stranger.get("/enter", params={"ticket": TICKET})
    assert response.status_code == 303
    return stranger


__all__ = ["postgres"]
