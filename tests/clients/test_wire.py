"""Recorded requests of the real clients, whose sessions the gateway keeps exact.

Each file holds the requests of one client on one task. A long text or description was replaced by its length
and digest, the same each time it occurs. Of the tools, one of each kind was kept.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.clients.drive import CLIENTS, KEY
from tests.clients.editor import Change, Editor
from tests.clients.exact import check_exact
from tests.gateway.conftest import serving

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.model.families import Renderer, load_renderer
from ostinato.store import Store
from ostinato.types import Arm

FILES = sorted((Path(__file__).parent / "wire").glob("*.json"))
CHANGE = Change(path="/home/ada/repo/calc.py", before="    return a - b", after="    return a + b")
TURNS = {client.name: client.turns for client in CLIENTS}
UNSUPPORTED = "cannot sample with json_schema"
"""Claude Code requests a title as JSON of a schema, and goes on without one."""


@pytest.fixture
def renderer(checkpoint: Path) -> Renderer:
    return load_renderer(checkpoint)


@pytest.fixture
async def scripted(renderer: Renderer, store: Store) -> AsyncIterator[Editor]:
    editor = Editor(renderer, CHANGE)
    engine = await serve_scripted(ScriptedEngine(editor))
    store.set_arms([Arm(name="main", version=3, share=1.0, engines=(engine.url,))])
    yield editor
    await engine.close()


def requests(path: Path) -> list[dict[str, Any]]:
    record = json.loads(path.read_text())
    for request in record["requests"]:
        if request["body"].get("tools") == "shared":
            request["body"]["tools"] = record["tools"]
    return list(record["requests"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_a_recorded_task_is_exact(
    path: Path, scripted: Editor, store: Store, renderer: Renderer
) -> None:
    async with serving(store, renderer) as url, aiohttp.ClientSession() as http:
        for request in requests(path):
            headers = request["headers"] | {"authorization": f"Bearer {KEY}"}
            async with http.post(url + request["path"], json=request["body"], headers=headers) as response:
                answer = await response.text()
                assert response.status == 200 or UNSUPPORTED in answer, answer
    check_exact(store, scripted.said, TURNS[path.stem])
