"""Conversations in lines of text on a real terminal, in a pipe, and across kill -9.

Covers harness/frontends/plain.py, harness/frontends/screen.py and harness/frontends/slash_commands.py.
"""

import asyncio
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.harness.story import STORY, call_text
from tests.harness.terminal import Terminal

from ostinato.harness.session_log import LogEventKind, SessionLog, Sessions
from ostinato.store import Store
from ostinato.types import Ending

ASKING = "[y] once  [a] always  [n] no, or n and what to do instead; then Enter > "


@pytest.fixture
def script() -> list[str]:
    return []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def terminal(repo: Path, gateway: str, home: Path, tmp_path: Path):
    def terminal(*arguments: str) -> Terminal:
        (tmp_path / "key").write_text("key\n")
        fixed = ("--plain", "--directory", str(repo), "--url", gateway, "--key-file", str(tmp_path / "key"))
        return Terminal(*fixed, *arguments, home=home)

    return terminal


async def test_a_conversation(terminal, script: list[str], repo: Path, store: Store, home: Path) -> None:
    original = (repo / "calc.py").read_text()
    async with terminal() as screen:
        await screen.until("> ")
        script += STORY
        screen.type("calc.py is off\n")
        await screen.until("+    return a + b")
        await screen.until("tokens")
        script += [
            call_text("ask_user", question="which?", options=["a", "b"]),
            call_text("bash", command="echo made > pkg/made && ls *.py"),
            call_text("bash", command="ls; echo made > pkg/made"),
            call_text("bash", command="rm made"),
            "well",
        ]
        screen.type("now ask\n")
        await screen.until("? which?\n  1 a\n  2 b\n")
        screen.type("1\n")
        asked = await screen.until(ASKING)
        assert "  echo made > pkg/made\n" in asked and "allow bash: echo made > pkg/made" in asked
        assert "allow bash: ls" not in asked
        screen.type("a\n")
        assert "May it use bash?\n  rm made" in await screen.until(ASKING)
        screen.type("n, keep it\n")
        await screen.until("error: not permitted by the user: keep it")
        await screen.until("well")
        await screen.until("tokens")
        assert (repo / "pkg/made").exists()
        screen.type("/undo\n")
        await screen.until("restored pkg/made")
        assert not (repo / "pkg/made").exists()
        screen.type("/undo\n")
        await screen.until("restored new.py")
        assert (repo / "calc.py").read_text() == original
        screen.type("/undo\n")
        await screen.until("nothing to undo")
        screen.type("/what\n")
        await screen.until("no command /what: /help lists them")
        screen.type("/quit\n")
        assert await screen.ended() == 0
    (session,) = store.sessions()
    assert f"`ostinato code --resume {session.id}` goes on here" in screen.screen
    assert session.ending is Ending.FINISHED
    for before, after in pairwise(store.turns(session.id)):
        assert after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids


@pytest.mark.slow
async def test_ctrl_c_stops_the_turn_and_then_leaves(terminal, script: list[str], store: Store) -> None:
    async with terminal() as screen:
        await screen.until("> ")
        script.append(call_text("bash", command="sleep 600"))
        screen.type("wait\n")
        await screen.until(ASKING)
        screen.type("y\n")
        await asyncio.sleep(0.3)
        screen.interrupt()
        await screen.until("interrupted; the session goes on")
        screen.type("think\n")  # the model never answers
        await asyncio.sleep(0.5)
        screen.interrupt()
        await screen.until("interrupted; the session goes on")
        script.append("here I am")
        screen.type("still there?\n")
        await screen.until("here I am")
        await screen.until("tokens")
        await screen.until("> ")
        screen.interrupt()
        assert await screen.ended() == 0
    (session,) = store.sessions()
    assert len(store.turns(session.id)) == 2


@pytest.mark.slow
async def test_new_and_resume(terminal, script: list[str], store: Store) -> None:
    script += ["one", "two", "three"]
    async with terminal("first", "--interactive") as screen:
        await screen.until("one")
        await screen.until("tokens")
        screen.type("/new\n")
        await screen.until("a new session")
        screen.type("second\n")
        await screen.until("two")
        await screen.until("tokens")
        screen.type("/resume\n")
        await screen.until("you last said: first")
        screen.type("third\n")
        await screen.until("three")
        screen.type("/resume nothing\n")
        await screen.until("no session nothing in")
        screen.type("/quit\n")
        assert await screen.ended() == 0
    assert sorted(len(store.turns(session.id)) for session in store.sessions()) == [1, 2]


@pytest.mark.slow
async def test_a_session_survives_kill_9(terminal, script: list[str], repo: Path, store, home: Path) -> None:
    sessions = Sessions(directory=home / "sessions")
    async with terminal("--auto") as screen:
        await screen.until("> ")
        script += [STORY[0], call_text("bash", command="echo half > calc.py; echo begun; sleep 600")]
        screen.type("calc.py is off\n")
        await screen.until("\nbegun")
        ((session_id, _),) = sessions.newest()
        with pytest.raises(Exception, match="is open in another process"):
            SessionLog(sessions.path(session_id))
        screen.kill()
        await screen.ended()
    kinds = [event.kind for event in sessions.load(session_id)]
    assert kinds[-3:] == [LogEventKind.ASKED, LogEventKind.ANSWERED, LogEventKind.CHECKPOINT]
    async with terminal("--resume", "--auto") as screen:
        await screen.until("> ")
        screen.type("/undo\n")
        await screen.until("restored calc.py")
        assert "return a - b" in (repo / "calc.py").read_text()
        script += [STORY[1], "alpha adds now"]
        screen.type("go on\n")
        await screen.until("alpha adds now")
        screen.type("/quit\n")
        assert await screen.ended() == 0
    assert "return a + b" in (repo / "calc.py").read_text()
    (session,) = store.sessions()
    turns = store.turns(session.id)
    assert [turn.index for turn in turns] == [0, 1, 2, 3]
    kept = turns[1].prompt_ids + turns[1].completion.ids
    assert turns[2].prompt_ids[: len(kept)] == kept


@pytest.mark.parametrize("redirection", ["< /dev/null", "<&-"])
def test_without_a_terminal(repo: Path, home: Path, redirection: str) -> None:
    """Nothing to read and nobody to ask: it says so and ends."""
    command = f"{sys.executable} -m ostinato.cli code --directory {repo} {redirection}"
    environment = os.environ | {
        "OSTINATO_STATE": str(home),
        "XDG_CONFIG_HOME": str(home),
        "OSTINATO_KEY": "k",
    }
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert "nothing to do: give a prompt, or start it in a terminal" in done.stdout
    assert not list((home / "sessions").glob("*"))


async def test_a_pipe_of_requests(repo: Path, home: Path, gateway: str, script: list[str]) -> None:
    script += ["one", call_text("bash", command="touch made"), "two"]
    command = [sys.executable, "-m", "ostinato.cli", "code", "--directory", str(repo), "--url", gateway]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OSTINATO_STATE": str(home), "XDG_CONFIG_HOME": str(home), "OSTINATO_KEY": "key"},
    )
    output, _ = await process.communicate(b"first\n\nsecond")
    assert process.returncode == 0
    for shown in (b"one", b"not permitted unasked, and nobody is there to ask", b"two"):
        assert shown in output
    assert not (repo / "made").exists()
