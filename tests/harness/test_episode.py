"""Episodes with a search service: the same tool over every sandbox, and void when the service failed."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.harness.story import call_text
from tests.search.toolbox import running

from ostinato.gateway.access.keys import hash_key
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import Episode, EpisodeRunner
from ostinato.harness.providers.search import SearchAt
from ostinato.harness.users import SilentUser
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.tasks.pebble import generate, provide
from ostinato.tasks.pebble.generate import sample
from ostinato.types import Ending, SignalKind, Source

CONFIG = HarnessConfig(profile="full", max_context=20_000, max_tokens=400)


@pytest.fixture
def script() -> list[str]:
    return [call_text("semantic_search", query="assert test return"), "found it"]


async def episode(gateway: str, directory: Path, search: SearchAt | None) -> Episode:
    backend = ProcessBackend()
    async with GatewayClient(gateway, "key") as client:
        runner = EpisodeRunner(client, backend, Verifier(backend), CONFIG, search=search)
        task = provide(sample("train", 7), directory / "task")
        found = await runner.run(task, SilentUser(), source=Source.PRACTICE)
    await backend.aclose()
    return found


@pytest.fixture
def trainer(store: Store) -> Store:
    """Practice is held under a key of ours."""
    store.add_key(hash_key("key"), "trainer", "admin")
    return store


async def test_practice_searches_its_sandbox(gateway: str, tmp_path: Path, trainer: Store) -> None:
    async with running(tmp_path / "search.db") as service:
        found = await episode(gateway, tmp_path, SearchAt(url=service.url, key="key"))
        assert service.index.embedded > 0
    assert found.void is None and found.outcome.ending is Ending.FINISHED
    answer = next(each for each in found.outcome.transcript if each["role"] == "tool")
    assert answer["content"].partition(":")[0].endswith(".py")


async def test_a_service_that_failed_voids_the_episode(gateway: str, tmp_path: Path, trainer: Store) -> None:
    found = await episode(gateway, tmp_path, SearchAt(url="http://127.0.0.1:1", key="key"))
    assert found.void is not None and "search service does not answer" in found.void
    session = trainer.session(found.session_id)
    assert session is not None and session.ending is Ending.INFRASTRUCTURE


FETCH = "python -c \"import urllib.request as u; u.urlopen('http://solution.test/x')\""


@pytest.mark.parametrize("script", [[call_text("bash", command=FETCH), "done"]])
async def test_connections_that_a_session_was_refused_are_in_its_record(
    gateway: str, tmp_path: Path, trainer: Store
) -> None:
    (tmp_path / "policy.toml").write_text('allow = ["wheels.test:443"]\n')
    try:
        backend = await choose_backend(SandboxConfig(backend="ns", egress=str(tmp_path / "policy.toml")))
    except SandboxError as error:
        pytest.skip(str(error))
    async with GatewayClient(gateway, "key") as client:
        runner = EpisodeRunner(client, backend, Verifier(backend), replace(CONFIG, profile="core"))
        task = provide(sample("train", 7), tmp_path / "task")
        found = await runner.run(task, SilentUser(), source=Source.PRACTICE)
    await backend.aclose()
    told = [signal.value for signal in found.signals() if signal.kind is SignalKind.NETWORK_REFUSED]
    assert found.void is None and told == [1.0]


@pytest.mark.parametrize(("said", "value"), [("done", 0.0), ("done, though {} says otherwise", 1.0)])
def test_what_contradicts_the_request_is_a_fact_about_the_session(
    said: str, value: float, tmp_path: Path
) -> None:
    impossible, plain = generate("impossible", "train", 4), generate("fix", "train", 4)
    for pebble, expected in ((impossible, [value]), (plain, [])):
        task = provide(pebble, tmp_path / pebble.id)
        message = said.format(f"test_{pebble.targets[0].name}")
        outcome = Outcome(session_id="s", ending=Ending.FINISHED, final_message=message, turns=1, calls=())
        found = Episode(
            task=task,
            session_id="s",
            outcome=outcome,
            changed=True,
            solved=True,
            tampered=False,
            void=None,
        )
        told = [signal.value for signal in found.signals() if signal.kind is SignalKind.REPORTED]
        assert told == expected
