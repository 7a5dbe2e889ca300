"""`ostinato code` end to end: real git, a real gateway process, a scripted engine."""

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.keys import hash_key
from ostinato.harness.git import Snapshots
from ostinato.harness.main import code
from ostinato.harness.prompt import SYSTEM
from ostinato.harness.tools import TOOLS
from ostinato.model.renderer import Renderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Arm, Ending, Source


def call_text(name: str, **arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


STORY = [
    "I look first.\n" + call_text("read", path="calc.py"),
    call_text("edit", path="calc.py", old_string="a - b", new_string="a + b"),
    call_text("write", path="new.py", content="x = 1\n"),
    "alpha adds now",
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store.db")
    store.add_key(hash_key("key"), "ada")
    return store


@pytest.fixture
def script() -> list[str]:
    return list(STORY)


@pytest.fixture
async def gateway(tmp_path: Path, store: Store, script: list[str]) -> AsyncIterator[str]:
    """Address of a gateway process whose model says the script."""
    tokenizer = Tokenizer.train(["def alpha(a, b): return a - b"], 400, skeletons(SYSTEM, TOOLS))
    tokenizer.save(tmp_path / "checkpoint")
    renderer = Renderer(tokenizer)

    async def policy(request):
        if not script:
            await asyncio.Event().wait()
        return (*tokenizer.encode(script.pop(0)), renderer.stop_ids[0])

    engine = await serve_scripted(ScriptedEngine(policy))
    store.set_arms([Arm(name="main", version=1, share=1.0, engine=engine.url)])
    command = [sys.executable, "-m", "ostinato.gateway.server", "--store", str(tmp_path / "store.db")]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    process.kill()
    await process.wait()
    await engine.close()


@pytest.fixture
def coded(repo: Path, gateway: str):
    async def run(prompt: str = "calc.py is off", **changes):
        screen = io.StringIO()
        console = Console(file=screen, width=100)
        options = {"directory": repo, "url": gateway, "key": "key", "console": console} | changes
        return await code(prompt, **options), screen.getvalue()

    return run


async def test_a_real_edit_in_a_real_repository(coded, repo: Path, store: Store) -> None:
    (repo / "notes.txt").write_text("mine, not committed\n")
    status, screen = await coded(directory=repo / "pkg")
    assert status == 0
    assert "return a + b" in (repo / "calc.py").read_text()
    assert (repo / "new.py").read_text() == "x = 1\n"
    for shown in ("I look first.", "● read calc.py", "● edit calc.py", "  ok", "alpha adds now"):
        assert shown in screen
    assert "-    return a - b" in screen
    assert "+    return a + b" in screen
    assert "+++ b/new.py" in screen
    assert "notes.txt" not in screen
    (session,) = store.sessions()
    assert (session.user, session.source, session.ending) == ("ada", Source.LIVE, Ending.FINISHED)
    turns = store.turns(session.id)
    assert [turn.segment for turn in turns] == [0, 0, 0, 0]
    for before, after in pairwise(turns):
        kept = before.prompt_ids + before.completion.ids
        assert after.prompt_ids[: len(kept)] == kept
    left = subprocess.run(["git", "-C", repo, "status", "-s"], capture_output=True, text=True, check=True)
    assert left.stdout == " M calc.py\n?? new.py\n?? notes.txt\n"


async def test_a_repository_without_commits_will_do(coded, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    subprocess.run(["git", "init", "-q", fresh], check=True)
    (fresh / "calc.py").write_text("def alpha(a, b):\n    return a - b\n")
    status, screen = await coded(directory=fresh)
    assert status == 0
    assert "+    return a + b" in screen


async def test_stopping_it_tells_the_gateway(coded, script: list[str], repo: Path, store: Store) -> None:
    del script[2:]
    running = asyncio.ensure_future(coded())
    while script or not store.sessions() or len(store.turns(store.sessions()[0].id)) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    running.cancel()
    status, screen = await running
    assert status == 130
    assert "interrupted" in screen
    assert "+    return a + b" in screen
    assert store.sessions()[0].ending is Ending.ABANDONED


async def test_what_is_wrong_is_said_and_nothing_is_touched(coded, tmp_path: Path, repo: Path) -> None:
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
    (tmp_path / "plain").mkdir()
    for changes, message in (
        ({"directory": tmp_path / "plain"}, "no git working tree at"),
        ({"directory": tmp_path / "none"}, "no git working tree at"),
        ({"directory": bare}, "no git working tree at"),
        ({"key": ""}, "no API key: give --key or set OSTINATO_KEY"),
        ({"key": "wrong"}, "refused with 401: this API key is not known"),
    ):
        status, screen = await coded(**changes)
        assert (status, message in screen) == (2, True), screen
    assert "return a - b" in (repo / "calc.py").read_text()


async def test_a_gateway_that_is_not_there(coded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.harness.main.PATIENCE_S", 0.2)
    status, screen = await coded(url="http://127.0.0.1:1")
    assert status == 1
    assert "http://127.0.0.1:1 did not answer" in screen.replace("\n", " ")


async def test_snapshots_leave_nothing_in_the_repository(repo: Path) -> None:
    def everything() -> set[Path]:
        return set((repo / ".git").rglob("*"))

    before = everything()
    index = (repo / ".git/index").read_bytes()
    snapshots = Snapshots(repo)
    one = await snapshots.take()
    (repo / "calc.py").unlink()
    diff = await snapshots.diff(one, await snapshots.take())
    snapshots.close()
    assert "deleted file" in diff
    assert everything() == before
    assert (repo / ".git/index").read_bytes() == index
