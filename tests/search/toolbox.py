"""A search service with real HTTP and a cache on disk, and a client for its tests."""

import asyncio
import base64
import io
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from ostinato.search.app import create_app
from ostinato.search.config import SearchConfig
from ostinato.search.index import Index
from ostinato.search.server import open_index

CALC = b'''import os


class Till:
    """Counts coins."""

    def total_of_coins(self, coins):
        return sum(coins)


def parse_header(line):
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
'''
NOTES = b"# Notes\n\nThe till is closed on Sundays.\n"
FILES = {"shop/calc.py": CALC, "NOTES.md": NOTES}


@dataclass
class Service:
    """A service in this process, and the index behind it."""

    url: str
    index: Index
    cache: Path

    def forget(self) -> None:
        """Remove rows from the cache, as a full disk or another process may do."""
        self.index._open.clear()
        with sqlite3.connect(self.cache) as database:
            database.execute("DELETE FROM files")
        database.close()


@asynccontextmanager
async def running(cache: Path, **settings: object) -> AsyncIterator[Service]:
    index = open_index(SearchConfig(cache=cache, **settings))

    async def authenticate(key: str) -> bool:
        return key == "key"

    config = uvicorn.Config(create_app(index, authenticate), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Service(f"http://127.0.0.1:{port}", index, cache)
    server.should_exit = True
    await task
    index.close()


async def post(http, url, body, **options):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http.post(url, data=io.BytesIO(data), **options) as response:
        return response.status, await response.json()


def packed(files):
    return [{"path": path, "content": base64.b64encode(data).decode()} for path, data in files.items()]
