"""Covers loop/team/join.py and loop/team/commands.py: an operator's line, and a person's first session."""

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gateway.conftest import serving

from ostinato.cli import main
from ostinato.edits.install.git_hooks import find, uninstall
from ostinato.edits.report.journal import EventJournal
from ostinato.edits.report.send import HttpEventSink, deliver
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.team.file import TeamError
from ostinato.loop.team.join import JoinRefusedError, join
from ostinato.loop.team.people import invite, remove
from ostinato.model.families import load_renderer
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.types import Arm
from ostinato.web.joined import joined, joined_path

AWAY = ["--address", "http://127.0.0.1:9"]
"""An address at which no gateway of this machine is."""


@pytest.fixture
async def gateway(record: Store, model: Path):
    renderer = load_renderer(model)

    async def say(_: object) -> tuple[int, ...]:
        return (*renderer.tokenizer.encode("the answer"), renderer.stop_ids[0])

    engine = await serve_scripted(ScriptedEngine(say))
    record.set_arms([Arm(name="champion", version=0, share=1.0, engines=(engine.url,))])
    async with serving(record, renderer) as url:
        yield url
    await engine.close()


@pytest.fixture
def joins(typed):
    """Return a function that types `ostinato join …`, and returns the lines that it prints."""

    async def run(*words: str) -> list[str]:
        return await asyncio.to_thread(lambda: list(join(typed("join", *words))))

    return run


async def test_one_line_and_the_agent_works(gateway, record, joins, home, tmp_path) -> None:
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", repo], check=True)
    code = invite(record, ["ada"], "", days=7)["ada"]
    words = ("--consent", "yes", "--repository", str(repo), "--client", "claude-code", "--client", "codex")
    lines = await joins(gateway, code, *words)
    assert "you are ada" in lines[0] and lines[1] == "your sessions from now on may be trained on"
    assert (repo / ".git/ostinato/enabled").exists() and (repo / ".claude/settings.local.json").exists()
    settings = json.loads((home / ".claude/settings.json").read_text())["env"]
    assert settings["ANTHROPIC_BASE_URL"] == gateway and settings["ANTHROPIC_AUTH_TOKEN"] == joined().key
    key = record.key(hash_key(joined().key))
    assert key is not None and key.user == "ada" and code not in joined_path().read_text()
    command = [sys.executable, "-m", "ostinato", "code", "hello", "--directory", str(repo)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert "the answer" in done.stdout
    (session,) = record.sessions()
    assert session.user == "ada" and session.consent
    assert await joins("--consent", "no") == ["your sessions are not trained on"]
    assert not record.accounts.consented([("", "ada")])["", "ada"]


async def test_who_leaves_is_refused_by_word_and_by_hook_and_the_hooks_can_go(
    gateway, record, joins, home, tmp_path
) -> None:
    """What a revoked key's hooks saw waits on the person's own machine, named, for a valid key."""
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", repo], check=True)
    code = invite(record, ["ada"], "", days=7)["ada"]
    await joins(gateway, code, "--consent", "yes", "--repository", str(repo))
    journal = EventJournal(tmp_path)
    journal.append([{"id": "e1", "name": "edit.survival", "time": 1.0, "session_id": "s", "attributes": {}}])
    assert remove(record, "ada", None)[1:] == (1, 0)
    sent = await asyncio.to_thread(deliver, journal, HttpEventSink(joined()))
    assert (sent.taken, sent.refused) == (0, 0) and "API key" in sent.waiting
    command = [sys.executable, "-m", "ostinato", "code", "hello", "--directory", str(repo)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode and "API key" in done.stdout + done.stderr
    uninstall(find(repo))
    assert not (repo / ".git/ostinato/enabled").exists() and len(list(journal.read(0))) == 1


async def test_an_answer_that_was_lost_costs_nothing(gateway, record, joins, home, monkeypatch) -> None:
    code = invite(record, ["ada"], "", days=7)["ada"]
    with monkeypatch.context() as patched:
        patched.setattr("ostinato.loop.team.join.keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            await joins(gateway, code, "--consent", "yes")
    assert not joined_path().exists() and len(record.accounts.keys()) == 2
    assert "you are ada" in (await joins(gateway, code))[0]
    assert len(record.accounts.keys()) == 2 and record.key(hash_key(joined().key)) is not None
    with pytest.raises(JoinRefusedError, match="valid once"):  # as on another machine
        await joins(gateway, code)


async def test_what_cannot_be_joined_is_named_and_the_key_stays(gateway, record, joins, home) -> None:
    await joins(gateway, invite(record, ["ada"], "", days=7)["ada"])
    before = joined()
    for words, said in (
        (("ftp://x", "join_1"), "is no address"),
        (("http://127.0.0.1:9", "join_1"), "does not answer"),
        ((gateway, "join_1"), "not known here"),
        ((f"{gateway}/v1/no", "join_1"), "POST /v1/no/join"),
    ):
        with pytest.raises(JoinRefusedError, match=said):
            await joins(*words)
    assert joined() == before
    assert remove(record, "ada", None)[1] == 1
    with pytest.raises(JoinRefusedError, match="not known"):  # a key that was revoked
        await joins("--consent", "no")


async def test_a_client_of_somebody_s_own_is_left_and_the_rest_done(gateway, record, joins, home) -> None:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"env": {"ANTHROPIC_BASE_URL": "https://mine"}}')
    code = invite(record, ["ada"], "", days=7)["ada"]
    with pytest.raises(JoinRefusedError, match=r"(?s)you have joined.*env\.ANTHROPIC_BASE_URL") as refused:
        await joins(gateway, code, "--client", "claude-code", "--client", "zed", "--repository", str(home))
    assert "no git repository" in str(refused.value) and "mine" in path.read_text()
    assert joined().key and (home / ".config/zed/settings.json").exists()


async def test_a_person_at_a_terminal_is_asked_in_plain_words(
    gateway, record, joins, home, monkeypatch
) -> None:
    (home / ".codex").mkdir()
    (home / ".claude").mkdir()
    asked, answers = list[str](), iter(["y", "", "n", "yes"])

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("builtins.input", answer)
    await joins(gateway, invite(record, ["ada"], "", days=7)["ada"])
    assert "used to train the team's model" in asked[0] and "change your mind" in asked[0]
    assert not (home / ".claude/settings.json").exists() and (home / ".codex/config.toml").exists()
    assert record.accounts.consented([("", "ada")])["", "ada"]


def test_the_commands_of_the_operator(engine: str, model: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["team", "init", "--engine", "gpu:8000", "--model", "smol"]) == 2
    assert "--engine is 'gpu:8000'" in capsys.readouterr().err
    assert main(["team", "init"]) == 2
    assert "--engine and --model must be given" in capsys.readouterr().err
    assert main(["team", "init", "--engine", "http://127.0.0.1:9", "--model", "smol", *AWAY]) == 0
    assert "`ostinato team up` waits for it" in capsys.readouterr().out
    assert main(["team", "add", "ada", "ben", "--org", "payments"]) == 0
    out = capsys.readouterr().out
    assert out.count(f"ostinato join {AWAY[1]} join_") == 2
    assert "ostinato consent set yes --organisation payments --directory runs/team" in out
    assert main(["consent", "set", "yes", "--organisation", "payments", "--directory", "runs/team"]) == 0
    assert main(["team", "add", "cyd", "--org", "payments"]) == 0
    assert "has not agreed" not in capsys.readouterr().out
    assert main(["team", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in status["people"]] == ["invited"] * 3 and not status["up"]
    assert main(["team", "status"]) == 0
    assert "down: `ostinato team up`" in capsys.readouterr().out
    assert main(["team", "remove", "ben"]) == 0
    out = capsys.readouterr().out
    assert "ostinato purge --user ben --organisation payments --directory runs/team" in out
    assert main(["team", "remove", "ben"]) == 2


async def test_an_engine_of_another_model_is_named_before_anything_is_written(
    engine: str, tmp_path: Path, monkeypatch, typed
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("team", "init", "--engine", f"{engine}/v1", "--model")
    other, right = typed(*words, "Qwen/Qwen3-8B"), typed(*words, "hub/smol")
    with pytest.raises(TeamError, match="serves smol, and not Qwen/Qwen3-8B"):
        await asyncio.to_thread(other.run, other)
    assert list(tmp_path.iterdir()) == []
    assert await asyncio.to_thread(right.run, right) == 0
    assert "context = 4096" in (tmp_path / "team.toml").read_text()
