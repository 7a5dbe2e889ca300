"""Covers loop/mining/sessions.py: tasks of recorded sessions, and the reasons why there is none."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ostinato.harness.session_log import LogEventKind, Sessions
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.loop.mining.mine import Miner, MiningConfig
from ostinato.loop.mining.sessions import SessionMiner
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.store import Store
from ostinato.tasks.base import load_task
from ostinato.types import Session, Source, Task

WRONG = "def double(x):\n    return x + 2\n"
RIGHT = "def double(x):\n    return x * 2\n"
TEST = "from calc import double\n\n\ndef test_two():\n    assert double(2) == 4\n"
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
    yield Shop(root=root, sessions=sessions, store=store, miner=miner, yielded=yielded)
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
        "tests pass before, or fail after": 1,
        "nothing was committed": 1,
    }


async def test_a_commit_of_two_sessions_is_no_task_of_the_first(shop: Shop) -> None:
    await shop.session("first", "halve it please, thanks", WRONG + "# halved\n", None, commit=False)
    await shop.session("second", "double(3) is 5??  pls fix", RIGHT, MORE)
    evidence = json.loads(((await mined(shop)).directory / "evidence.json").read_text())
    assert evidence["source"]["session"] == "second"
    assert shop.yielded.tally.refused == {"mixed with a later session": 1}
