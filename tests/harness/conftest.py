"""A real git repository in a real sandbox, for agents with scripted models."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fuzz.scripted_gateway import scripted_gateway
from tests.harness.story import STORY

from ostinato.gateway.access.keys import hash_key
from ostinato.harness.execute import Executor
from ostinato.harness.users import ScriptedUser
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Limits, Sandbox, Spec
from ostinato.store import Store

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
    yield await backend.create(Spec(repo=repo, limits=Limits(wall_s=5.0)))
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
    async with scripted_gateway(tmp_path, store, script) as url:
        yield url
