"""A session that is being lost cannot be made void: nothing that a command does ends its sandbox's agent."""

import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.hacks.conftest import REPO
from tests.hacks.sessions import LAME

from ostinato.sandbox import Backend, Limits, Spec
from ostinato.sandbox.backends.namespaces.backend import NsBackend, NsSandbox
from ostinato.sandbox.base import ChangesError, EndedWithinError, Sandbox
from ostinato.sandbox.protocol.connection import ConnectionLostError

WAITS = 'import time; print("up", flush=True); time.sleep(20)'
LIMITS = Limits(wall_s=8.0, cpu_s=6, processes=20, memory_mb=300)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    for name, text in REPO.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", LAME)
async def test_no_command_ends_its_sandbox(ns_backend: Backend, repo: Path, name: str) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo, limits=LIMITS))
    await sandbox.exec(LAME[name])
    assert (await sandbox.exec("echo still here; ulimit -n")).output == "still here\n1024\n"
    with suppress(ChangesError):
        await sandbox.changes()
    assert (await sandbox.exec("echo $((1 + 1))")).output == "2\n"
    await sandbox.destroy()


async def test_a_command_can_be_interrupted(ns_backend: Backend, repo: Path) -> None:
    """Process 1 may go on while the processes that it starts do not."""
    sandbox = await ns_backend.create(Spec(repo=repo, limits=LIMITS))
    for command in ("trap 'exit 1' INT; echo up; while :; do :; done", f"exec python -c '{WAITS}'"):
        process = await sandbox.start(command)
        async for _ in process.output():
            await process.signal(signal.SIGINT)
        assert (await process.wait()).exit_code in (-signal.SIGINT, 1)
    await sandbox.destroy()


async def ended(backend: Backend, repo: Path) -> Sandbox:
    """A sandbox whose agent is gone as if a command could end it."""
    sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
    assert isinstance(sandbox, NsSandbox)
    sandbox._connection.end("lost", ConnectionLostError)
    return sandbox


async def test_an_agent_that_ends_alone_was_ended_from_within(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ended(ns_backend, repo)
    for call in (sandbox.exec("true"), sandbox.changes(), sandbox.read("calc.py")):
        with pytest.raises(EndedWithinError):
            await call
    await sandbox.destroy()


async def test_an_agent_that_ends_with_all_others_was_not(repo: Path) -> None:
    backend = NsBackend()
    sandbox = await ended(backend, repo)
    assert backend._zygote is not None
    backend._zygote._process.kill()
    with pytest.raises(Exception) as found:  # noqa: PT011
        await sandbox.exec("true")
    assert not isinstance(found.value, EndedWithinError)
    await backend.aclose()
