"""A harness of thirty lines, in a sandbox without a network, before a real gateway and a scripted model.

Covers harness/outside/config.py, harness/outside/starts.py, harness/outside/relay.py,
harness/outside/door.py and harness/outside/runner.py.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fuzz.scripted_gateway import scripted_gateway
from tests.sandbox.conftest import backends, ns_backend  # noqa: F401 - fixtures

from ostinato.config import ConfigError
from ostinato.harness.outside.config import OutsideConfig
from ostinato.harness.outside.runner import OutsideRunner
from ostinato.harness.outside.starts import KEY, command_start
from ostinato.harness.users import SilentUser
from ostinato.loop.config import RunConfig
from ostinato.loop.config import check as check_run
from ostinato.model.families import load_renderer
from ostinato.rewards.practice.definition import PRACTICE, PracticeReward
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.rollout.sampling import SlotWork
from ostinato.sandbox import Backend, Unsupported
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.slot_rows import SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.tasks.pebble.generate import sample
from ostinato.tasks.pebble.write import provide
from ostinato.tasks.source import Problem
from ostinato.types import TEACHER_VERSION, Ending, Grade, Source, Task

AGENT = """
import json, os, sys, urllib.error, urllib.request
url, task = sys.argv[1:]
assert "OSTINATO_KEY" not in os.environ
messages = [{"role": "user", "content": task}]
for _ in range(int(os.environ.get("CALLS", "2"))):
    body = json.dumps({"model": "ostinato", "messages": messages, "stream": True}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer wrong", "X-Session-Id": "forged"}
    request = urllib.request.Request(url + "/v1/chat/completions", body, headers)
    try:
        lines = urllib.request.urlopen(request).read().decode().splitlines()
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
        sys.exit(3)
    pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"])
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "and then?"}]
    name, _, source = text.partition("=")
    if source:
        with open(name, "w") as file:
            file.write(source)
for path in ("/v1/sessions", "/feedback", "/metrics"):
    try:
        urllib.request.urlopen(urllib.request.Request(url + path, b"{}"))
    except urllib.error.HTTPError as error:
        assert error.code == 404, path
print("done")
"""
SILENT = "print('I do nothing')\n"


@pytest.fixture
def script() -> list[str]:
    return []


@pytest.fixture
async def gateway(tmp_path: Path, store: Store, script: list[str]) -> AsyncIterator[str]:
    async with scripted_gateway(tmp_path, store, script) as url:
        store.add_key(hash_key("admin"), "practice", "admin", "main")
        yield url


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return provide(sample("train", 4), tmp_path / "task")


def outside(directory: Path, source: str = AGENT, **changes: object) -> OutsideConfig:
    directory.mkdir(exist_ok=True)
    (directory / "agent.py").write_text(source)
    command = ("python3", "{place}/agent.py", "{url}", "{task}")
    return OutsideConfig(harness="command", directory=directory, command=command, wall_s=60, **changes)  # type: ignore[arg-type]


@pytest.fixture
def runner(gateway: str, ns_backend: Backend, tmp_path: Path) -> OutsideRunner:  # noqa: F811
    config = outside(tmp_path / "agent")
    return OutsideRunner(gateway, "admin", ns_backend, Verifier(ns_backend), config)


async def test_a_session_is_recorded_as_sampled_and_judged(
    runner: OutsideRunner, task: Task, store: Store, script: list[str]
) -> None:
    script += ["new.py=x = 1\n", "that is all"]
    episode = await runner.run(task, SilentUser(), source=Source.PRACTICE)
    assert (episode.void, episode.outcome.ending) == (None, Ending.FINISHED)
    assert episode.outcome.final_message == "done" and episode.outcome.turns == 2
    assert episode.changed and not episode.solved
    (session,) = store.sessions()
    assert (session.id, session.source, session.task_id) == (episode.session_id, Source.PRACTICE, task.id)
    assert (session.harness, session.ending) == ("outside/command", Ending.FINISHED)
    first, second = store.turns(session.id)
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    assert second.prompt_ids[len(first.prompt_ids) :][: len(first.completion.ids)] == first.completion.ids


async def test_the_turn_limit_ends_the_session(
    gateway: str,
    ns_backend: Backend,  # noqa: F811
    task: Task,
    script: list[str],
    tmp_path: Path,
) -> None:
    script += ["one", "two", "three"]
    config = outside(tmp_path / "agent", max_turns=1)
    one = OutsideRunner(gateway, "admin", ns_backend, Verifier(ns_backend), config)
    episode = await one.run(task, SilentUser(), source=Source.PRACTICE)
    assert (episode.outcome.ending, episode.outcome.turns) == (Ending.TURN_LIMIT, 1)
    assert script == ["two", "three"]


async def test_a_harness_that_calls_no_model_is_void_and_says_so(
    gateway: str,
    ns_backend: Backend,  # noqa: F811
    task: Task,
    store: Store,
    tmp_path: Path,
) -> None:
    config = outside(tmp_path / "silent", SILENT)
    silent = OutsideRunner(gateway, "admin", ns_backend, Verifier(ns_backend), config)
    episode = await silent.run(task, SilentUser(), source=Source.PRACTICE)
    assert episode.void is not None
    assert "command called no model (exit status 0); its last words: I do nothing" in episode.void
    assert store.sessions() == []


async def test_a_gateway_that_is_away_is_void(ns_backend: Backend, task: Task, tmp_path: Path) -> None:  # noqa: F811
    config = outside(tmp_path / "agent")
    away = OutsideRunner("http://127.0.0.1:9", "admin", ns_backend, Verifier(ns_backend), config)
    episode = await away.run(task, SilentUser(), source=Source.PRACTICE)
    assert episode.void is not None and "the gateway did not respond" in episode.void


async def test_practice_offers_its_groups(
    runner: OutsideRunner, store: Store, script: list[str], tmp_path: Path
) -> None:
    script += ["new.py=x = 1\n", "that is all"] * 4
    settings = PracticeConfig(group_size=2, groups_at_once=1, ready_ahead=9)
    reward = PracticeReward(PRACTICE, load_renderer(tmp_path / "checkpoint"))
    training = Training(batch=2, staleness=4, until=1)
    work = SlotWork(runner, settings)
    practice = Reconciler(work, store, reward, tmp_path / "tasks", training, seed=1)
    problems = [_problem(seed) for seed in (4, 5)]
    await practice.run(iter(problems), lambda: practice.progress.groups >= 2)
    entered = Slots(store).entered()
    assert (entered[SlotState.SCORED], entered[SlotState.RUNNING], practice.progress.untrainable) == (4, 4, 0)
    assert Ledger(store).ready(TEACHER_VERSION) == 2


def _problem(seed: int) -> Problem:
    pebble = sample("train", seed)
    return Problem(
        id=pebble.id,
        key=pebble.key,
        kind=pebble.kind,
        split="train",
        grade=Grade.JUDGED,
        provide=lambda folder: provide(pebble, folder / pebble.id),
    )


def test_what_cannot_be_run_is_refused_at_the_start(tmp_path: Path) -> None:
    for config, reason in (
        (
            OutsideConfig(harness="vim", directory=tmp_path),
            "no harness that practice can run: mini-swe-agent",
        ),
        (OutsideConfig(harness="codex", directory=tmp_path), "has no node_modules/.bin/codex"),
        (OutsideConfig(harness="command", directory=tmp_path), "`command` is given for the harness"),
        (outside(tmp_path / "a", max_turns=0), "max_turns 0"),
    ):
        with pytest.raises(ValueError, match=reason):
            config.check()
        with pytest.raises(ConfigError, match=r"practice\.outside: "):
            check_run(RunConfig(practice=PracticeConfig(outside=config)))
    good = outside(tmp_path / "b")
    check_run(RunConfig(practice=PracticeConfig(outside=good)))
    with pytest.raises(ConfigError, match=r"practice\.outside needs sandbox\.backend ns"):
        check_run(RunConfig(sandbox=SandboxConfig(backend="process"), practice=PracticeConfig(outside=good)))
    with pytest.raises(ValueError, match="cannot be forked"):
        PracticeConfig(branches=2, outside=good)
    with pytest.raises(Unsupported, match="use ns"):
        OutsideRunner("http://127.0.0.1:1", "k", ProcessBackend(), Verifier(ProcessBackend()), good)


def test_placeholders_are_replaced_once() -> None:
    start = command_start(("{place}/x", "{task}", "{other}"), "http://h", "write {url} down")
    assert start.command == ("/mnt/harness/x", "write {url} down", "{other}")
    assert json.dumps(dict(start.environment)).count(KEY) == 2
