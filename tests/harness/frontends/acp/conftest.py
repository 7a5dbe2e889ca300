"""A gateway process whose model says a script, for editors."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.harness.profiles.profile import PROFILES
from ostinato.model.families import HermesRenderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Arm


@dataclass
class Model:
    """The scripted model: its replies turn by turn, and the requests it got; it hangs when the script is
    over.
    """

    script: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture
def script(model: Model) -> list[str]:
    model.script = []
    return model.script


@pytest.fixture
def prompts(model: Model) -> list[str]:
    model.prompts = []
    return model.prompts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def store(place: Path) -> Store:
    store = Store.open(place / "store.db")
    store.add_key(hash_key("key"), "ada")
    return store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(place: Path, store: Store, model: Model) -> AsyncIterator[str]:
    """One for all tests of a module."""
    full = PROFILES["full"]
    corpus = ["def alpha(a, b): return a - b"]
    tokenizer = Tokenizer.train(corpus, 500, skeletons(full.system, list(full.tools)))
    tokenizer.save(place / "checkpoint")
    renderer = HermesRenderer(tokenizer)

    async def policy(request):
        model.prompts.append(tokenizer.decode(request.prompt_ids))
        if not model.script:
            await asyncio.Event().wait()
        return (*tokenizer.encode(model.script.pop(0)), renderer.stop_ids[0])

    engine = await serve_scripted(ScriptedEngine(policy))
    store.set_arms([Arm(name="main", version=1, share=1.0, engines=(engine.url,))])
    command = [sys.executable, "-m", "ostinato.gateway.server", "--store", str(place / "store.db")]
    command += ["--checkpoint", str(place / "checkpoint")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    process.kill()
    await process.wait()
    await engine.close()
