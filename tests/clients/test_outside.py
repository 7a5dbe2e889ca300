"""Real harnesses practise: each does a task in a sandbox without a network, and is judged and recorded.

Covers harness/outside/starts.py for the harnesses that it names.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clients.conftest import Door
from tests.clients.editor import Change, Editor
from tests.clients.exact import check_exact
from tests.clients.install import PACKAGES

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.harness.outside.config import OutsideConfig
from ostinato.harness.outside.runner import OutsideRunner
from ostinato.harness.users import SilentUser
from ostinato.model.families import load_renderer
from ostinato.rewards.practice.definition import PRACTICE, PracticeReward
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.rollout.sampling import SlotWork
from ostinato.sandbox import Backend, SandboxError
from ostinato.sandbox.backends.namespaces.backend import NsBackend
from ostinato.sandbox.choose import KINDS, probe
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store.accounts import hash_key
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.slots import Slots
from ostinato.tasks.base import load_task
from ostinato.tasks.source import Problem
from ostinato.types import Arm, Source, Task

pytestmark = [pytest.mark.clients, pytest.mark.slow]
HARNESSES = {
    "mini-swe-agent": ("mini-swe-agent", 3),
    "claude-code": ("@anthropic-ai/claude-code", 3),
    "codex": ("@openai/codex", 4),
    "opencode": ("opencode-ai", 3),
}
"""The package of each harness, and the turns that the task takes it."""


@pytest.fixture
async def namespaces() -> AsyncIterator[Backend]:
    try:
        backend = await probe(KINDS["ns"])
    except SandboxError as error:
        pytest.skip(f"ns: {error}")
    yield backend
    await backend.aclose()


@pytest.fixture
def task(door: Door, tmp_path: Path) -> Task:
    directory = tmp_path / "task"
    (directory / "environment").mkdir(parents=True)
    (directory / "tests").mkdir()
    door.desk.repo.rename(directory / "environment/repo")
    (directory / "task.toml").write_text("[metadata.ostinato]\nsplit = 'train'\n")
    (directory / "instruction.md").write_text(door.desk.task)
    hidden = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
    (directory / "tests/test_hidden.py").write_text(hidden)
    return load_task(directory)


def config_of(harness: str) -> OutsideConfig:
    package = PACKAGES[HARNESSES[harness][0]]
    if package.missing is not None:
        pytest.skip(package.missing)
    return OutsideConfig(harness=harness, directory=package.home, wall_s=240)


@pytest.fixture
async def practising(door: Door, checkpoint: Path) -> AsyncIterator[Door]:
    """The same door, with a model that edits where a sandbox has its repository."""
    change = Change(path="/repo/calc.py", before="    return a - b", after="    return a + b")
    editor = Editor(load_renderer(checkpoint), change)
    engine = await serve_scripted(ScriptedEngine(editor))
    door.store.set_arms([Arm(name="main", version=3, share=1.0, engines=(engine.url,))])
    door.store.add_key(hash_key("admin"), "practice", "admin", "main")
    await asyncio.sleep(0)
    yield replace(door, editor=editor)
    await engine.close()


@pytest.mark.parametrize("harness", HARNESSES)
async def test_a_harness_solves_a_task_in_a_sandbox(
    harness: str, practising: Door, task: Task, namespaces: NsBackend
) -> None:
    config = config_of(harness)
    runner = OutsideRunner(practising.desk.gateway, "admin", namespaces, Verifier(namespaces), config)
    episode = await runner.run(task, SilentUser(), source=Source.PRACTICE)
    assert episode.void is None, episode.void
    assert episode.solved, (episode.outcome.reason, episode.outcome.final_message)
    (session,) = practising.store.sessions()
    assert (session.source, session.harness) == (Source.PRACTICE, f"outside/{harness}")
    check_exact(practising.store, practising.editor.said, HARNESSES[harness][1])


async def test_practice_with_mini_swe_agent(
    practising: Door, task: Task, namespaces: NsBackend, checkpoint: Path, tmp_path: Path
) -> None:
    config = config_of("mini-swe-agent")
    runner = OutsideRunner(practising.desk.gateway, "admin", namespaces, Verifier(namespaces), config)
    settings = PracticeConfig(group_size=3, groups_at_once=1, ready_ahead=9, outside=config)
    reward = PracticeReward(PRACTICE, load_renderer(checkpoint))
    work, training = SlotWork(runner, settings), Training(batch=1, staleness=4, until=1)
    practice = Reconciler(work, practising.store, reward, tmp_path / "practice", training, seed=1)
    await practice.run(iter([Problem.of(task)]), lambda: practice.progress.groups >= 1)
    assert (practice.progress.solved, practice.progress.untrainable) == (3, 0)
    assert Slots(practising.store).reasons() == {}
    (group,) = Ledger(practising.store).claim(1, 1, -1)
    rows = [sum(sample.mask) for sample in group.samples]
    turns = [turn for session in practising.store.sessions() for turn in practising.store.turns(session.id)]
    assert sum(rows) == sum(len(turn.completion.ids) for turn in turns)
