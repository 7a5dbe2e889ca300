"""Tasks in the background: real processes, a real gateway, a scripted model.

Covers harness/frontends/background/run.py, harness/frontends/background/commands.py,
harness/frontends/background/tasks.py, harness/frontends/background/settle.py.
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz.scripted_gateway import scripted_gateway
from tests.harness.story import STORY, call_text

from ostinato.gateway.access.keys import hash_key
from ostinato.gateway.conversation_cache import ConversationCache
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.signals.endings import IDLE_S, SessionEndings
from ostinato.harness.frontends.background.run import TESTING
from ostinato.harness.frontends.background.tasks import BackgroundTasks, TaskState, cause_of_death
from ostinato.harness.profiles.prompt import SYSTEM
from ostinato.harness.tools.definitions import TOOLS
from ostinato.harness.workspace.workbench import PEOPLE
from ostinato.model.families import HermesRenderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Ending, SignalKind

TEST = "test -f new.py"
WORK = [*STORY[:3], call_text("bash", command=TEST), "alpha adds now"]
LIMIT = 34_000


class Desk:
    """A person's shell, in their repository."""

    def __init__(self, repo: Path, state: Path, gateway: str) -> None:
        self.repo, self.tasks = repo, BackgroundTasks(directory=state / "background")
        self._environment = {
            **os.environ, "OSTINATO_STATE": str(state), "OSTINATO_KEY": "key", "OSTINATO_URL": gateway,
        }  # fmt: skip

    async def run(
        self, *words: str, status: int = 0, limit: int = 0, cwd: Path | None = None, key: str = "key"
    ) -> str:
        """Return what a command printed; it runs without a terminal, in a session that ends with it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ostinato", *words),
            cwd=cwd or self.repo,
            env=self._environment | {"OSTINATO_KEY": key},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None,
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == status, said
        return said

    async def begin(self, *words: str, **options: Any) -> str:
        """Begin a task, and return its id."""
        await self.run(
            "code", "--background", "calc.py is off", "--allow", f"bash: {TEST}", *words, **options
        )
        return self.tasks.meant("").id

    async def until(self, state: TaskState) -> None:
        while self.tasks.state(self.tasks.meant("")) is not state:
            await asyncio.sleep(0.02)

    async def shown(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(await self.run("background", "show", "--json"))
        return found


@pytest.fixture
def desk(repo: Path, tmp_path: Path, gateway: str) -> Desk:
    return Desk(repo, tmp_path / "state", gateway)


def facts(store: Store, task_id: str) -> Sequence[tuple[SignalKind, float | str]]:
    return [(signal.kind, signal.value) for signal in store.signals(task_id)]


@pytest.mark.parametrize("script", [[*WORK]])
async def test_it_works_beside_the_person_reports_and_is_taken(desk: Desk, store: Store) -> None:
    (desk.repo / "notes.txt").write_text("mine, not committed\n")
    said = await desk.run("code", "--background", "calc.py is off", "--allow", f"bash: {TEST}")
    task = desk.tasks.meant("")
    for expected in (task.id, "a copy of your files", "  allow read: *", f"  allow bash: {TEST}",
                     "  deny edit: .git", "every other call is refused", "background follow"):  # fmt: skip
        assert expected in said
    (desk.repo / "mine.py").write_text("written while it works\n")
    followed = await desk.run("background", "follow")
    assert "I look first." in followed and "alpha adds now" in followed and "changed calc.py" in followed
    assert "return a - b" in (desk.repo / "calc.py").read_text()
    shown = await desk.shown()
    report = shown["report"]
    assert (shown["state"], report["ending"], report["message"]) == ("ended", "finished", "alpha adds now")
    assert report["files"] == ["calc.py", "new.py"] and report["turns"] == 5
    assert report["checks"] == [{"command": TEST, "passed": True}]
    copy = Path(task.place)
    assert (copy / "notes.txt").exists() and not (copy / "mine.py").exists()
    status = subprocess.run(["git", "-C", copy, "status", "-s"], capture_output=True, text=True, check=True)
    assert status.stdout == " M calc.py\n?? new.py\n?? notes.txt\n"
    assert facts(store, task.id) == [(SignalKind.BACKGROUND, 1.0), (SignalKind.ENDING, "finished")]
    assert "changed new.py" in await desk.run("background", "take", task.id[:8])
    assert "return a + b" in (desk.repo / "calc.py").read_text() and (desk.repo / "new.py").exists()
    assert facts(store, task.id)[2:] == [(SignalKind.EDIT_KEPT, 1.0)]
    assert "taken already" in await desk.run("background", "drop", status=2)
    assert "taken  finished" in await desk.run("background", "list") and not copy.exists()


async def test_it_goes_on_from_its_own_summary_for_more_turns_than_a_prompt_has(
    repo: Path, tmp_path: Path, store: Store
) -> None:
    (repo / "long.txt").write_text("~" * 6_000)
    reading, looking = call_text("read", path="long.txt"), call_text("ls")
    script = [reading, looking, "Summary: I read it", *[looking] * PEOPLE.max_turns, "done"]
    async with scripted_gateway(tmp_path, store, script, context=6500) as url:
        desk = Desk(repo, tmp_path / "state", url)
        await desk.begin()
        await desk.until(TaskState.ENDED)
    report = (await desk.shown())["report"]
    turns = PEOPLE.max_turns + 4
    assert (report["ending"], report["turns"], report["summaries"]) == ("finished", turns, 1)


@pytest.mark.parametrize("script", [[*WORK]])
async def test_what_both_changed_is_not_taken_and_can_be_dropped(desk: Desk, store: Store) -> None:
    task_id = await desk.begin()
    await desk.until(TaskState.ENDED)
    (desk.repo / "calc.py").write_text("mine\n")
    said = await desk.run("background", "take", status=1)
    assert "you changed calc.py too, so nothing was taken" in said
    assert not (desk.repo / "new.py").exists() and (desk.repo / "calc.py").read_text() == "mine\n"
    await desk.run("background", "drop")
    assert facts(store, task_id)[2:] == [(SignalKind.EDIT_REVERTED, 1.0)]
    assert not Path(desk.tasks.meant("").place).exists()


@pytest.mark.parametrize("script", [STORY[:2]])
async def test_a_stop_is_the_persons_and_a_second_task_in_one_folder_is_refused(
    desk: Desk, store: Store
) -> None:
    """The model has no more to say, so the task waits for it."""
    task_id = await desk.begin("--here")
    said = await desk.run("code", "--background", "again", "--here", status=2)
    assert f"background task {task_id} works in {desk.repo}" in said
    assert len(desk.tasks.all()) == 1
    assert "works: wait for it" in await desk.run("background", "drop", status=2)
    while len(store.turns(task_id)) < 2:
        await asyncio.sleep(0.02)
    assert "stopped by `ostinato background stop`" in await desk.run("background", "stop", task_id[:8])
    assert "does not work any more" in await desk.run("background", "stop", status=2)
    assert "code --undo" in await desk.run("background", "take", status=2)
    session = store.session(task_id)
    assert session is not None and session.ending is Ending.ABANDONED


@pytest.mark.parametrize("script", [STORY[:2]])
async def test_a_machine_that_shuts_down_is_no_bad_outcome(desk: Desk, store: Store) -> None:
    task_id = await desk.begin()
    while len(store.turns(task_id)) < 2:
        await asyncio.sleep(0.02)
    os.kill(desk.tasks.meant("").pid, signal.SIGTERM)
    await desk.until(TaskState.ENDED)
    report = (await desk.shown())["report"]
    assert report["ending"] == "infrastructure" and "shuts down" in report["reason"]
    session = store.session(task_id)
    assert session is not None and session.ending is Ending.INFRASTRUCTURE


@pytest.mark.parametrize("script", [STORY[:2]])
async def test_a_machine_that_dies_leaves_a_void_session_that_is_named(
    desk: Desk, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await desk.begin()
    edited = Path(desk.tasks.meant("").place, "calc.py")
    while not facts(store, task_id) or "a + b" not in edited.read_text():
        await asyncio.sleep(0.02)
    os.kill(desk.tasks.meant("").pid, signal.SIGKILL)
    await desk.until(TaskState.DEAD)
    shown = await desk.shown()
    assert shown["state"] == "dead" and "killed, or out of memory" in shown["death"]
    other_boot = replace(desk.tasks.meant(""), boot="another start")
    assert "went down" in cause_of_death(other_boot)
    assert f"dead: its process {other_boot.pid}" in await desk.run("background", "follow", status=1)
    recorder = Recorder(store)
    recorder.start()
    tokenizer = Tokenizer.train(["def"], 300, skeletons(SYSTEM, TOOLS))
    endings = SessionEndings(store, ConversationCache(store), recorder, HermesRenderer(tokenizer))
    await endings.sweep(time.time() + IDLE_S + 60)
    recorder.stop()
    session = store.session(task_id)
    assert session is not None and session.ending is Ending.INFRASTRUCTURE
    assert f"background session {task_id} fell silent" in caplog.text
    await desk.run("background", "take")
    assert "return a + b" in (desk.repo / "calc.py").read_text()


@pytest.mark.parametrize("script", [[call_text("read", path="long.txt")] * 2])
async def test_a_full_disk_is_reported_and_void(desk: Desk, store: Store) -> None:
    """A file that may not grow stands for a disk that is full: both are an error of a write."""
    (desk.repo / "long.txt").write_text("→" * 5_000)
    task_id = await desk.begin(limit=LIMIT)
    await desk.until(TaskState.ENDED)
    report = (await desk.shown())["report"]
    assert (report["ending"], report["reason"]) == ("infrastructure", "a file: File too large")
    session = store.session(task_id)
    assert session is not None and session.ending is Ending.INFRASTRUCTURE
    said = await desk.run("code", "--background", "again", limit=1_000, status=2)
    assert "File too large" in said and len(desk.tasks.all()) == 1


async def test_what_is_wrong_is_said_at_once_and_leaves_nothing(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    begin = ("code", "--background", "x")
    for words, options, message in (
        (begin, {"cwd": tmp_path / "plain"}, "no git working tree at"),
        (begin, {"key": ""}, "no API key"),
        (begin, {"key": "wrong"}, "refused with 401"),
        ((*begin, "--url", "http://127.0.0.1:1"), {}, "127.0.0.1:1 did not answer"),
        ((*begin, "--resume"), {}, "goes with no --interactive"),
        (("code", "--here", "x"), {}, "--here goes with --background alone"),
        (("background", "show", "3f2a"), {}, "no background task"),
    ):
        assert message in await desk.run(*words, status=2, **options), words
    assert desk.tasks.all() == [] and list(desk.tasks.directory.glob("*/")) == []
    assert "no background task in" in await desk.run("background", "list")


@pytest.mark.parametrize("script", [["done"]])
async def test_an_unknown_id_and_a_damaged_record_are_named(desk: Desk) -> None:
    task_id = await desk.begin()
    await desk.until(TaskState.ENDED)
    assert "no background task ffff" in await desk.run("background", "follow", "ffff", status=2)
    assert "no file was changed" in await desk.run("background", "show", task_id[:6])
    (desk.tasks.directory / f"{task_id}.json").write_text("{")
    assert f"{task_id}.json: not a background task" in await desk.run("background", "list", status=2)


async def test_a_key_without_feedback_is_said_in_its_text(
    desk: Desk, store: Store, script: list[str]
) -> None:
    script[:] = ["done"]
    store.add_key(hash_key("mute"), "bob", "use")
    await desk.begin(key="mute")
    assert "does not take what became of this session" in await desk.run("background", "follow")


@pytest.mark.parametrize(
    ("command", "tests"),
    [("pytest -q", True), ("make check", True), ("python tests/run.py", True), ("npm test", True),
     ("git checkout .", False), ("ls latest", False), ("cat contest.py", False),
     ("python test_calc.py", True)],
)  # fmt: skip
def test_a_command_that_tests_the_work_is_told_from_others(command: str, tests: bool) -> None:
    assert bool(TESTING.search(command)) is tests
