"""A search service, a client of it, and files to search."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.search.toolbox import FILES, running
from tests.watchdog import watched


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[str]:
    async with running(tmp_path / "search.db") as service:
        yield service.url


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer key"}) as session:
        yield session


@pytest.fixture
def files() -> dict[str, bytes]:
    return dict(FILES)


@pytest.fixture(autouse=True)
def awake() -> Iterator[None]:
    """No callback of a server in this process may keep its loop: see `tests/watchdog.py`."""
    with watched():
        yield
