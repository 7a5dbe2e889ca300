"""A real git repository in a real sandbox, for agents with scripted models."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.harness.story import STORY

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.keys import hash_key
from ostinato.harness.execute import Executor
from ostinato.harness.prompt import SYSTEM
from ostinato.harness.tools import TOOLS
from ostinato.harness.users import ScriptedUser
from ostinato.model.renderer import Renderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.base import Limits, Sandbox
from ostinato.sandbox.process import ProcessBackend
from ostinato.store import Store
from ostinato.types import Arm

CALC = "def alpha(a, b):\n    return a - b\n\n\ndef beta(x):\n    return x[1]\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    repo = tmp_path / "repo"
    (repo / "pkg").mkdir(parents=True)
    (repo / "calc.py").write_text(CALC)
    (repo / "pkg" / "util.py").write_text("from calc import alpha\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", "-C", str(repo), *identity, *command], check=True)
    return repo


@pytest.fixture
async def sandbox(repo: Path) -> AsyncIterator[Sandbox]:
    backend = ProcessBackend()
    yield await backend.open(repo, Limits(wall_s=5.0))
    await backend.aclose()


@pytest.fixture
def user() -> ScriptedUser:
    return ScriptedUser(["use +"])


@pytest.fixture
def tools(sandbox: Sandbox, user: ScriptedUser) -> Executor:
    return Executor(sandbox, user, command_timeout_s=2.0)


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
