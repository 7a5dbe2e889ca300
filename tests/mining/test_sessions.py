"""Tasks of recorded sessions, and the reasons why there is none.

Covers mining/sessions.py.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.store.builders import session, turn

from ostinato.edits.capture import hook_command, spool
from ostinato.edits.follow.windows import SystemClock
from ostinato.edits.install.git_hooks import find, install
from ostinato.edits.report.reporter import open_reporter
from ostinato.harness.session_log import LogEventKind, Sessions
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.mining.mine import Miner, MiningConfig
from ostinato.mining.sessions import SessionMiner, outside_sessions
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.store import Store
from ostinato.tasks.base import load_task
from ostinato.types import Session, Source, Task

WRONG = "def double(x):\n    return x + 2\n"
RIGHT = "def double(x):\n    return x * 2\n"
TEST = "from calc import double\n\n\ndef test_two():\n    assert double(2) == 4\n"
TOKENIZER = Tokenizer.train(["<|im_start|>user\nfix it<|im_end|>\n" * 3], 300)
MORE = TEST + "\n\ndef test_three():\n    assert double(3) == 6\n"


def git(directory: Path, *arguments: str, at: str = "") -> None:
    command = ["git", "-C", str(directory), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    environment = os.environ | ({"GIT_COMMITTER_DATE": at} if at else {})
    subprocess.run(command, check=True, capture_output=True, env=environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A person's repository, their sessions and the gateway's record."""

    root: Path
    sessions: Sessions
    store: Store
    backend: ProcessBackend
    miner: SessionMiner
    yielded: Miner

    async def session(
        self, id: str, text: str, source: str, test: str | None, *, consent: bool = True, commit: bool = True
    ) -> None:
        """Record one session that writes calc.py, and commit it with tests that the person wrote."""
        self.store.accounts.set_consent(user="ada", granted=consent, by="ada")
        self.store.start_session(
            Session(
                id=id,
                source=Source.LIVE,
                user="ada",
                arm="main",
                task_id=None,
                harness="9f",
                started_at=0.0,
                consent=consent,
            )
        )
        checkpoints = await Checkpoints.open(self.root, self.sessions.directory.parent / "checkpoints")
        with self.sessions.open(id) as log:
            log.append(LogEventKind.SESSION, root=str(self.root))
            log.append(LogEventKind.USER, text=text)
            before = await checkpoints.take()
            log.append(LogEventKind.CHECKPOINT, id="c0", tree=before)
            (self.root / "calc.py").write_text(source)
            log.append(LogEventKind.EDIT, id="c0", path="calc.py", trees=[before, await checkpoints.take()])
        checkpoints.close()
        if test is not None:
            (self.root / "test_calc.py").write_text(test)
        if commit:
            git(self.root, "add", "-A")
            git(self.root, "commit", "-q", "-m", "double doubles")


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    root = tmp_path / "arith"
    root.mkdir()
    git(root, "init", "-q")
    for name, text in (("calc.py", WRONG), ("test_calc.py", TEST), ("LICENSE", "MIT License\n")):
        (root / name).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "start", at="2026-01-01T00:00:00Z")
    sessions = Sessions(directory=tmp_path / "state" / "sessions")
    backend, store = ProcessBackend(), Store.open(tmp_path / "record.db")
    (tmp_path / "out").mkdir()
    yielded = Miner(backend, tmp_path / "out", MiningConfig())
    miner = SessionMiner(backend, yielded, store, sessions, root)
    yield Shop(root=root, sessions=sessions, store=store, backend=backend, miner=miner, yielded=yielded)
    await backend.aclose()


async def mined(shop: Shop) -> Task:
    found = await shop.miner.mine()
    assert found, shop.yielded.tally
    (task,) = found
    return task


async def test_a_session_becomes_a_task_in_the_words_of_the_user(shop: Shop) -> None:
    await shop.session("s1", "double(3) is 5??  pls fix", RIGHT, MORE)
    task = await mined(shop)
    again = load_task(task.directory)
    assert again.instruction == "double(3) is 5??  pls fix"
    assert (again.repo / "calc.py").read_text() == WRONG
    evidence = json.loads((task.directory / "evidence.json").read_text())
    assert evidence["source"]["from"] == "session" and evidence["source"]["session"] == "s1"
    assert any("test_three" in id for id in again.test_ids)


async def test_tests_that_were_there_may_tell_before_from_after(shop: Shop) -> None:
    (shop.root / "test_calc.py").write_text(MORE)
    git(shop.root, "commit", "-q", "-a", "-m", "a test that fails")
    await shop.session("s1", "the tests fail", RIGHT, None)
    assert any("test_three" in id for id in (await mined(shop)).test_ids)


async def test_secrets_in_the_words_are_redacted(shop: Shop) -> None:
    key = "sk-ant-api03-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY" * 3
    await shop.session("s1", f"double is off, key {key}", RIGHT, MORE)
    assert key not in (await mined(shop)).instruction


async def test_consent_that_was_taken_back_holds(shop: Shop) -> None:
    await shop.session("s1", "double(3) is 5??  pls fix", RIGHT, MORE)
    shop.store.accounts.set_consent(user="ada", granted=False, by="ada")
    assert await shop.miner.mine() == []
    assert shop.yielded.tally.refused == {"no consent": 1}


async def test_what_cannot_be_verified_is_thrown_away_with_its_reason(shop: Shop) -> None:
    await shop.session("withheld", "fix it", RIGHT, MORE, consent=False)
    await shop.session("same", "write it another way", RIGHT.replace("x * 2", "2 * x"), None)
    await shop.session("kept back", "fix it", WRONG, None, commit=False)
    with shop.sessions.open("talk") as log:
        log.append(LogEventKind.SESSION, root=str(shop.root))
        log.append(LogEventKind.USER, text="what does it do?")
    with shop.sessions.open("elsewhere") as log:
        log.append(LogEventKind.SESSION, root="somewhere/else")
    assert await shop.miner.mine() == []
    tally = shop.yielded.tally
    assert tally.stages["sessions read"] == 4
    assert tally.refused == {
        "no consent": 1,
        "not in the record": 1,
        "tests pass before": 1,
        "nothing was committed": 1,
    }


async def test_a_commit_of_two_sessions_is_no_task_of_the_first(shop: Shop) -> None:
    await shop.session("first", "halve it please, thanks", WRONG + "# halved\n", None, commit=False)
    await shop.session("second", "double(3) is 5??  pls fix", RIGHT, MORE)
    evidence = json.loads(((await mined(shop)).directory / "evidence.json").read_text())
    assert evidence["source"]["session"] == "second"
    assert shop.yielded.tally.refused == {"mixed with a later session": 1}


def hook(root: Path, name: str, **more: object) -> None:
    """Call the hook as Claude Code does, in this process and without a reporter in the background."""
    event = {"hook_event_name": name, "session_id": "c1", "cwd": str(root), "transcript_path": "/t", **more}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "wake", lambda repo: None)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(event).encode())))
        assert hook_command.main(["--input", "stdin"]) == 0


def of_claude(shop: Shop, said: str, *, consent: bool = True) -> None:
    """Let Claude Code write calc.py under its hooks, and the gateway record what its user said."""
    repo = find(shop.root)
    install(repo, git_hooks=False)
    hook(shop.root, "SessionStart", source="startup")
    (shop.root / "notes.txt").write_text("by hand, before the first prompt\n")
    hook(shop.root, "UserPromptSubmit", prompt=said)
    (shop.root / ".env.local").write_text("never committed\n")
    call = {"tool_name": "Edit", "tool_use_id": "call_0_0", "tool_input": {"file_path": "calc.py"}}
    hook(shop.root, "PreToolUse", **call)
    (shop.root / "calc.py").write_text(RIGHT)
    hook(shop.root, "PostToolUse", **call)
    open_reporter(repo, SystemClock()).tick()
    prompt = f"<|im_start|>user\n<system-reminder>be brief</system-reminder>{said}<|im_end|>\n"
    ids = tuple(TOKENIZER.encode(f"{prompt}<|im_start|>assistant\n"))
    shop.store.accounts.set_consent(user="ada", granted=consent, by="ada")
    shop.store.start_session(replace(session("c1"), source=Source.LIVE, user="ada", consent=consent))
    shop.store.record([replace(turn(0, "c1"), prompt_ids=ids)], [])
    (shop.root / "test_calc.py").write_text(MORE)
    git(shop.root, "add", "calc.py", "test_calc.py", "notes.txt")
    git(shop.root, "commit", "-q", "-m", "double doubles")


async def outside(shop: Shop, tokenizer: Tokenizer | None) -> list[Task]:
    readings = outside_sessions(shop.root, shop.store, tokenizer)
    miner = SessionMiner(shop.backend, shop.yielded, shop.store, shop.sessions, shop.root, outside=readings)
    return await miner.mine()


async def test_a_session_of_claude_code_becomes_a_task_too(shop: Shop) -> None:
    of_claude(shop, "double(3) is 5??  pls fix")
    (task,) = await outside(shop, TOKENIZER)
    again = load_task(task.directory)
    assert again.instruction == "double(3) is 5??  pls fix"
    assert (again.repo / "calc.py").read_text() == WRONG and (again.repo / "notes.txt").exists()
    assert not (again.repo / ".env.local").exists()
    assert any("test_three" in id for id in again.test_ids)
    evidence = json.loads((task.directory / "evidence.json").read_text())["source"]
    assert (evidence["session"], evidence["edited"]) == ("c1", ["calc.py"])


async def test_words_need_a_tokenizer_and_consent(shop: Shop) -> None:
    of_claude(shop, "double(3) is 5??  pls fix")
    assert await outside(shop, None) == []
    shop.store.accounts.set_consent(user="ada", granted=False, by="ada")
    assert await outside(shop, TOKENIZER) == []
    assert shop.yielded.tally.refused == {"no words of the user": 1, "no consent": 1}
