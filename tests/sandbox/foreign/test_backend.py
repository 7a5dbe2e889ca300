"""Sessions and exams with sandboxes of foreign engines, and what fails there.

Covers sandbox/foreign/backend.py, sandbox/foreign/sandbox.py, sandbox/foreign/client.py,
sandbox/foreign/guest.py and sandbox/foreign/settings.py. The promises of every backend are in
tests/sandbox/test_conformance.py.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fuzz.scripted_gateway import scripted_gateway
from tests.sandbox.conftest import FAR, by_name

from ostinato.gateway.access.keys import hash_key
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.users import SilentUser
from ostinato.sandbox import Backend, SandboxError, Spec
from ostinato.sandbox.base import ChangesError, EndedWithinError
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.sandbox.foreign.backend import ForeignBackend
from ostinato.store import Store
from ostinato.tasks.pebble import provide
from ostinato.tasks.pebble.generate import sample
from ostinato.types import Ending, Source

CONFIG = HarnessConfig(max_context=20_000, max_tokens=400)


@pytest.fixture(params=FAR)
def foreign(request: pytest.FixtureRequest, backends: dict[str, Backend]) -> Backend:
    return by_name(request, request.param, backends)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[str]:
    store = Store.open(tmp_path / "store.db")
    store.add_key(hash_key("key"), "trainer", "admin")
    async with scripted_gateway(tmp_path, store, ["I looked, and all is well."]) as url:
        yield url


async def test_a_practice_session_is_held_there_and_judged_here(
    foreign: Backend, gateway: str, tmp_path: Path
) -> None:
    task = provide(sample("train", 7), tmp_path / "task")
    async with GatewayClient(gateway, "key") as client:
        runner = EpisodeRunner(client, foreign, Verifier(foreign), CONFIG)
        found = await runner.run(task, SilentUser(), source=Source.PRACTICE)
    assert found.void is None and found.outcome.ending is Ending.FINISHED
    assert not found.solved and not found.tampered


async def test_the_changes_of_a_sandbox_are_judged(foreign: Backend, tmp_path: Path) -> None:
    task = provide(sample("train", 7), tmp_path / "task")
    sandbox = await foreign.create(Spec(repo=task.repo))
    script = (tmp_path / "task" / "solution" / "solve.sh").read_text()
    solved = await sandbox.exec(f"REPO=.\n{script}")  # a command begins in the repository
    assert solved.exit_code == 0, solved.output
    changes = await sandbox.changes()
    await sandbox.destroy()
    assert (await Verifier(foreign, variations=0).verify(task, changes)).passed


async def test_what_a_command_breaks_is_its_own_failure(foreign: Backend, repo: Path) -> None:
    sandbox = await foreign.create(Spec(repo=repo))
    await sandbox.exec("truncate -s 15M a; cp a b; cp a c; cp a d; cp a e")
    with pytest.raises(ChangesError, match="more than"):
        await sandbox.changes()
    await sandbox.exec("rm -r ../program.zip")
    with pytest.raises(EndedWithinError, match="can't open file"):
        await sandbox.changes()
    await sandbox.destroy()


async def test_a_sandbox_that_does_not_open_is_an_error_of_ours(foreign: Backend, repo: Path) -> None:
    assert isinstance(foreign, ForeignBackend)
    with pytest.raises(SandboxError, match="layer") as raised:
        await foreign.begin(Spec(repo=repo), b"no layer")
    assert not isinstance(raised.value, EndedWithinError)
