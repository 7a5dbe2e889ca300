"""`ostinato code` end to end: real git, a real gateway process, a scripted engine.

Covers harness/frontends/code.py, harness/frontends/command_line.py, harness/workspace/facts.py and
harness/workspace/workbench.py.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from fuzz.scripted_gateway import TOO_LONG, scripted_gateway
from rich.console import Console
from tests.harness.story import call_text

from ostinato import cli
from ostinato.config import ConfigError
from ostinato.harness.frontends import command_line
from ostinato.harness.frontends.code import NO_TEXTUAL, CodeRequest, code
from ostinato.harness.frontends.command_line import SUMMARIZING
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.session_log import Sessions
from ostinato.harness.workspace.workbench import PEOPLE, Options
from ostinato.model.config import META
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.types import Ending, Signal, SignalKind, Source, TurnKind


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(directory=tmp_path / "state" / "sessions")


@pytest.fixture
def coded(repo: Path, gateway: str, sessions: Sessions):
    async def run(prompt: str | None = "calc.py is off", wish=(), **changes):
        screen = io.StringIO()
        options = {"directory": repo, "url": gateway, "key": "key", "sessions": sessions} | changes
        status = await code(
            CodeRequest(prompt=prompt, **dict(wish)), Options(**options), Console(file=screen, width=100)
        )
        return status, screen.getvalue()

    return run


async def test_an_undo_asks_no_gateway_and_names_what_it_leaves(coded, repo: Path, script) -> None:
    (repo / ".gitignore").write_text(".env\n")
    script[:] = [call_text("bash", command="echo A=1 > .env; echo x > made"), "done"]
    assert (await coded(auto=True))[0] == 0
    asked: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    status, screen = await coded(None, {"undo": True}, url=url, key="")
    server.close()
    assert (status, asked) == (0, [])
    assert screen.startswith("restored made\nleft as it is, no checkpoint has it: .env\n")
    assert f"the gateway at {url} does not know yet" in screen and "(there is no key)" in screen
    assert not (repo / "made").exists() and (repo / ".env").read_text() == "A=1\n"


async def relay(gateway: str, port: int = 0) -> asyncio.Server:
    """Make the gateway answer at another port, until that is closed."""

    async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", int(gateway.rpartition(":")[2]))
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer), return_exceptions=True)

    return await asyncio.start_server(through, "127.0.0.1", port)


async def test_an_undo_before_a_dead_gateway_is_told_to_it_when_it_lives(
    coded, repo: Path, script, store: Store, gateway: str
) -> None:
    script[:] = [call_text("bash", command="echo x > made"), "done"]
    way = await relay(gateway)
    port = way.sockets[0].getsockname()[1]
    at = {"url": f"http://127.0.0.1:{port}"}
    assert (await coded(auto=True, **at))[0] == 0
    way.close()
    status, screen = await coded(None, {"undo": True}, **at)
    assert status == 0 and not (repo / "made").exists()
    assert "(it does not answer): that is kept, and sent" in " ".join(screen.split())
    (session,) = store.sessions()

    def reverted() -> list[Signal]:
        return [each for each in store.signals(session.id) if each.kind is SignalKind.EDIT_REVERTED]

    assert reverted() == []
    for _ in range(2):  # it is told once
        script[:] = ["nothing to do"]
        way = await relay(gateway, port)
        assert (await coded("hello", **at))[0] == 0
        way.close()
        assert len(reverted()) == 1


async def test_a_real_edit_in_a_real_repository(coded, repo: Path, store: Store) -> None:
    (repo / "notes.txt").write_text("mine, not committed\n")
    status, screen = await coded(directory=repo / "pkg")
    assert status == 0
    assert "return a + b" in (repo / "calc.py").read_text()
    assert (repo / "new.py").read_text() == "x = 1\n"
    for shown in ("I look first.", "● read calc.py", "● edit calc.py", "  ok", "alpha adds now"):
        assert shown in screen
    assert "-    return a - b" in screen
    assert "+    return a + b" in screen
    assert "+++ b/new.py" in screen
    assert "notes.txt" not in screen
    (session,) = store.sessions()
    assert (session.user, session.source, session.ending) == ("ada", Source.LIVE, Ending.FINISHED)
    turns = store.turns(session.id)
    assert [turn.segment for turn in turns] == [0, 0, 0, 0]
    for before, after in pairwise(turns):
        kept = before.prompt_ids + before.completion.ids
        assert after.prompt_ids[: len(kept)] == kept
    left = subprocess.run(["git", "-C", repo, "status", "-s"], capture_output=True, text=True, check=True)
    assert left.stdout == " M calc.py\n?? new.py\n?? notes.txt\n"


async def test_a_repository_without_commits_will_do(coded, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    subprocess.run(["git", "init", "-q", fresh], check=True)
    (fresh / "calc.py").write_text("def alpha(a, b):\n    return a - b\n")
    status, screen = await coded(directory=fresh)
    assert status == 0
    assert "+    return a + b" in screen


async def test_a_long_file_is_written_whole(coded, script: list[str], repo: Path) -> None:
    """The gateway streams the arguments of a call in pieces."""
    text = "".join(f"x{number} = {number}\n" for number in range(120))
    script[2] = call_text("write", path="new.py", content=text)
    status, _ = await coded()
    assert status == 0
    assert (repo / "new.py").read_text() == text


async def test_stopping_it_tells_the_gateway(coded, script: list[str], repo: Path, store: Store) -> None:
    del script[2:]
    running = asyncio.ensure_future(coded())
    while script or not store.sessions() or len(store.turns(store.sessions()[0].id)) < 2:
        await asyncio.sleep(0.01)
    while "a + b" not in (repo / "calc.py").read_text():
        await asyncio.sleep(0.01)
    running.cancel()
    status, screen = await running
    assert status == 130
    assert "interrupted" in screen
    assert store.sessions()[0].ending is Ending.ABANDONED


async def test_a_key_that_may_not_tell_how_it_went_is_told_so(coded, store: Store) -> None:
    store.add_key(hash_key("mute"), "bob", "use")
    status, screen = await coded(key="mute")
    assert status == 0
    assert screen.count("the gateway does not take what became of this session") == 1
    assert "not feedback: ask for one" in " ".join(screen.split())


async def test_what_is_wrong_is_said_and_nothing_is_touched(coded, tmp_path: Path, repo: Path) -> None:
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
    (tmp_path / "plain").mkdir()
    for changes, message in (
        ({"directory": tmp_path / "plain"}, "no git working tree at"),
        ({"directory": tmp_path / "none"}, "no git working tree at"),
        ({"directory": bare}, "no git working tree at"),
        ({"key": ""}, "no API key: set OSTINATO_KEY, name a file"),
        ({"key": "wrong"}, "refused with 401: this API key is not known"),
    ):
        status, screen = await coded(**changes)
        assert (status, message in screen) == (2, True), screen
    assert "return a - b" in (repo / "calc.py").read_text()


async def test_a_session_is_as_long_as_the_served_model_reads(
    coded, tmp_path: Path, store: Store, script: list[str]
) -> None:
    async with scripted_gateway(tmp_path, store, list(script), context=4096) as url:
        status, screen = await coded(url=url)
    assert (status, "of 4,096 tokens" in screen) == (0, True), screen
    async with scripted_gateway(tmp_path, store, list(script), context=100) as url:
        status, screen = await coded(url=url)
    assert "the conversation is full" in screen and "of 100 tokens" in screen, screen


async def test_a_long_session_goes_on_from_its_own_summary(
    coded, tmp_path: Path, store: Store, repo: Path, sessions: Sessions
) -> None:
    """Under the profile of people; a model has that of its training, a short context none that summarises."""
    (repo / "long.txt").write_text("~" * 3_000)
    reading, looking = call_text("read", path="long.txt"), call_text("ls")
    script = [reading, looking, "Summary: I read it", "done"]
    options = {"config": replace(PEOPLE, profile=SUMMARIZING), "fits_profile": True}
    async with scripted_gateway(tmp_path, store, script, context=4096) as url:
        status, screen = await coded(url=url, **options)
    assert status == 0 and "done" in screen
    assert [turn.kind for turn in store.turns(store.sessions()[0].id)][2:] == [
        TurnKind.SUMMARY,
        TurnKind.MAIN,
    ]

    def told() -> str:
        return next(iter(sessions.newest()))[1][0].data["profile"]

    assert told() == "compact"
    async with scripted_gateway(tmp_path, store, ["done"], context=2048) as url:
        await coded(url=url, **options)
    assert told() == "core"
    (tmp_path / "checkpoint" / META).write_text(json.dumps({"harness": PROFILES["pi"].hash}))
    async with scripted_gateway(tmp_path, store, ["done"], context=4096) as url:
        _, screen = await coded(url=url, **options)
    assert told() == "pi" and "trained under another" not in screen


def test_an_address_without_its_scheme_is_refused_with_the_right_one(tmp_path: Path) -> None:
    for url in ("127.0.0.1:8080", "localhost:8080", "//127.0.0.1:8080", "", "http://", "ftp://x"):
        with pytest.raises(ConfigError, match=r"write it as http://(127.0.0.1|localhost):8080"):
            Options(directory=tmp_path, url=url, key="k")


@pytest.mark.parametrize("command", ["code", "acp"])
def test_a_key_is_read_from_a_file_and_never_from_the_command_line(command: str, tmp_path: Path) -> None:
    secret, file = "sk-very-secret", tmp_path / "key"
    file.write_text("")
    run = [sys.executable, "-m", "ostinato.cli", command]
    for arguments in (("--key", secret), ("--key-file", str(file)), ("--key-file", secret)):
        done = subprocess.run([*run, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "key" in done.stderr
        assert secret not in done.stdout + done.stderr


async def test_what_ended_a_session_is_said_as_it_was(coded, script: list[str]) -> None:
    """The limit that was met, and no other number beside it."""
    script[1:] = [TOO_LONG]
    status, screen = await coded()
    text = " ".join(screen.split())
    assert status == 1
    assert "stopped: the model cannot read more: " in text and "760 tokens leaves no room in 768" in text
    assert "of 32,000 tokens" not in text


async def test_a_full_conversation_says_how_full(coded) -> None:
    status, screen = await coded(prompt="x" * 100_000)
    assert status == 1
    assert "stopped: the conversation is full: 100,0" in screen and "of 32,000 tokens" in screen


async def test_the_hint_of_the_extra_is_shown_as_it_must_be_typed() -> None:
    screen = io.StringIO()
    Console(file=screen, width=200).print(NO_TEXTUAL, markup=False)
    assert "pip install -e '.[code]'" in screen.getvalue()


async def test_a_gateway_that_is_not_there(coded) -> None:
    status, screen = await coded(url="http://127.0.0.1:1", patience_s=0.2)
    assert status == 1
    begun, away, ended = " ".join(screen.split()).partition(
        "the gateway at http://127.0.0.1:1 does not answer"
    )
    assert not begun.removeprefix("ostinato: ") and away and "is tried again for 0 s" in ended
    assert ended.count("http://127.0.0.1:1 did not answer") == 2 and "does not answer" not in ended


async def test_the_first_turn_broken_off_is_no_fault(coded, script: list[str], repo: Path) -> None:
    """The gateway has nothing of that session, and its 404 is nobody's concern."""
    script.clear()
    running = asyncio.ensure_future(coded(wish={"plain": True}))
    logs = repo.parent / "state" / "sessions"
    while not any(b'"kind":"user"' in log.read_bytes() for log in logs.glob("*.jsonl")):
        await asyncio.sleep(0.01)
    running.cancel()
    status, screen = await running
    assert status == 130 and "interrupted" in screen and "does not take" not in screen


@pytest.mark.parametrize(
    "script",
    [[call_text("ls"), call_text("edit", path="d\\xe9/\\xff", old_string="1", new_string="2"), "→ done"]],
)
async def test_a_name_that_is_not_utf8_ends_no_session(coded, repo: Path) -> None:
    folder = os.fsencode(repo) + b"/d\xe9"
    os.mkdir(folder)
    for name, text in ((b"AGENTS.md", "be brief\n"), (b"\xff", "x = 1\n")):
        Path(os.fsdecode(folder + b"/" + name)).write_text(text)
    status, screen = await coded(auto=True)
    assert status == 0 and "→ done" in screen and "changed d\\xe9/\\xff" in screen


def test_a_terminal_that_is_not_utf8_ends_no_session(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("OSTINATO_KEY", "")
    command_line._run_code(cli.parser_of("code").parse_args(["code", "--directory", str(repo), "x"]))
    assert terminal.errors == "backslashreplace"
