"""`ostinato search serve` as a process.

Covers search/server.py and search/config.py.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.search.toolbox import packed, post

from ostinato.search.index import content_hash
from ostinato.store import Store


async def start(*options: str, key: str = "key") -> tuple[asyncio.subprocess.Process, str]:
    command = [sys.executable, "-m", "ostinato.cli", "search", "serve", "--port", "0", *options]
    environment = {**os.environ, "OSTINATO_KEY": key}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    return process, f"http://127.0.0.1:{json.loads(line)['port']}" if line else ""


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_the_index_outlives_a_kill(tmp_path: Path, http, files):
    cache = str(tmp_path / "deep" / "search.db")
    process, url = await start("--cache", cache)
    manifest = {path: content_hash(data) for path, data in files.items()}
    _, answer = await post(http, url + "/v1/search/trees", {"files": manifest})
    await post(http, url + "/v1/search/files", {"files": packed(files)})
    query = {"tree": answer["tree"], "query": "parse a header"}
    before = await post(http, url + "/v1/search", query)
    process.kill()
    await ended(process)
    process, url = await start("--cache", cache)
    assert await post(http, url + "/v1/search", query) == before
    process.send_signal(signal.SIGTERM)
    assert await ended(process) == (0, "")


async def test_keys_of_the_gateway_may_search(tmp_path: Path):
    from hashlib import sha256

    store = Store.open(tmp_path / "store.db")
    store.add_key(sha256(b"adas").hexdigest(), "ada")
    store.add_key(sha256(b"reporter").hexdigest(), "reporter", "feedback")
    store.close()
    options = ("--cache", str(tmp_path / "s.db"), "--store", str(tmp_path / "store.db"))
    process, url = await start(*options, key="")
    for key, status in (("adas", 200), ("reporter", 401), ("other", 401), ("", 401)):
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
            assert (await post(http, url + "/v1/search/trees", {"files": {}}))[0] == status
    process.send_signal(signal.SIGINT)
    assert await ended(process) == (0, "")


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ((), "", "no API key"),
        (("--model", "psychic"), "key", "unknown model psychic, use hashed or minilm"),
        (("--host", "203.0.113.1"), "key", "cannot listen on 203.0.113.1"),
        (("--cache", "/proc/none/search.db"), "key", "/proc/none"),
    ],
)
async def test_a_failed_start_says_why(tmp_path: Path, options, key, message):
    process, _ = await start("--cache", str(tmp_path / "s.db"), *options, key=key)
    status, errors = await ended(process)
    assert status == 2 and message in errors and "Traceback" not in errors
