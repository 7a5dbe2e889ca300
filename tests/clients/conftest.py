"""A gateway for one client: a repository, a gateway process, a scripted model, and no other network."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.clients.alone import is_alone
from tests.clients.drive import KEY, Desk
from tests.clients.editor import Change, Editor

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.model.families import load_renderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Arm

BEFORE = "def add(a, b):\n    return a - b\n"
AFTER = "def add(a, b):\n    return a + b\n"


@pytest.fixture(scope="session")
def _alone() -> None:
    """Skip where there is any network but loopback."""
    if not is_alone():
        pytest.skip("needs a network namespace of its own: run `make test-clients` on Linux")


@dataclass(frozen=True)
class Door:
    """A running gateway, its store, and the scripted model behind it."""

    desk: Desk
    store: Store
    editor: Editor


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    # The bytes alone would do; some merges keep the long prompts of real clients short.
    corpus = [path.read_text() for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md"))]
    Tokenizer.train(corpus, 2_000).save(directory)
    return directory


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    home, repo = tmp_path / "home", tmp_path / "repo"
    home.mkdir()
    repo.mkdir()
    (repo / "calc.py").write_text(BEFORE)
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(repo)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a calculator"]):
        subprocess.run([*git, *words], check=True)
    return Desk(home=home, repo=repo, gateway="")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    store.add_key(hash_key(KEY), "ada")
    yield store
    store.close()


@pytest.fixture
async def editor(desk: Desk, store: Store, checkpoint: Path) -> AsyncIterator[Editor]:
    """The scripted model, behind the only arm of the store."""
    path = str(desk.repo / "calc.py")
    change = Change(path=path, before="    return a - b", after="    return a + b")
    editor = Editor(load_renderer(checkpoint), change)
    engine = await serve_scripted(ScriptedEngine(editor))
    store.set_arms([Arm(name="main", version=3, share=1.0, engines=(engine.url,))])
    yield editor
    await engine.close()


@pytest.fixture
async def door(
    _alone: None, desk: Desk, store: Store, editor: Editor, checkpoint: Path, tmp_path: Path
) -> AsyncIterator[Door]:
    command = [sys.executable, "-m", "ostinato.gateway.server", "--store", str(tmp_path / "store.db")]
    process = await asyncio.create_subprocess_exec(
        *command, "--checkpoint", str(checkpoint), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    ready = await process.stdout.readline()
    assert ready, "the gateway did not start"
    here = replace(desk, gateway=f"http://127.0.0.1:{json.loads(ready)['port']}")
    yield Door(desk=here, store=store, editor=editor)
    process.terminate()
    await process.wait()
