"""An edit under Claude Code's hooks becomes a signal at a gateway, and its session a group to train on."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.conftest import KEY, serving

import ostinato
from ostinato.edits.install.git_hooks import find, install, uninstall
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.model.families import load_renderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout.collect import Collector
from ostinato.store import Store
from ostinato.types import Arm, Ending, GenerateRequest, Signal, SignalKind

SESSION = "0b5cf9de-5a4b-4a6e-8d0e-3f1a2b3c4d5e"
LATER = time.time() + 2 * LIVE.mature_s
BEFORE, AFTER = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
TOOL = {
    "name": "Edit",
    "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with nothing in their home but a name for git."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "OSTINATO_", "XDG_")):
            monkeypatch.delenv(name)
    (tmp_path / ".gitconfig").write_text("[user]\nname = t\nemail = t@t\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(ostinato.__file__).parent.parent))
    return tmp_path


def git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)


def hook(repository: Path, **event: object) -> None:
    """Call the hook as Claude Code does."""
    payload = {"session_id": SESSION, "cwd": str(repository), "transcript_path": "/t", **event}
    command = [sys.executable, "-P", "-m", "ostinato", "hook", "--input", "stdin"]
    done = subprocess.run(command, input=json.dumps(payload), text=True, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


async def messages(url: str) -> str:
    """Send one turn of the conversation, and return the id of the call that the model made."""
    body = {
        "model": "ostinato",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": "fix add"}],
        "tools": [TOOL],
    }
    headers = {"x-api-key": KEY, "x-claude-code-session-id": SESSION}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/messages", json=body, headers=headers) as response,
    ):
        answer = await response.json()
    assert response.status == 200, answer
    return str(next(part["id"] for part in answer["content"] if part["type"] == "tool_use"))


async def signals_of(store: Store, kind: SignalKind) -> list[Signal]:
    """Wait for a signal of that kind, and return all of them."""
    async with asyncio.timeout(300):
        while not (signals := [signal for signal in store.signals(SESSION) if signal.kind is kind]):
            await asyncio.sleep(0.1)
    return signals


async def ended(store: Store) -> Ending:
    """Wait until the session has ended, and return its ending."""
    async with asyncio.timeout(300):
        while (session := store.session(SESSION)) is None or session.ending is None:
            await asyncio.sleep(0.1)
    return session.ending


async def test_an_edit_that_was_committed_becomes_a_signal_and_its_session_is_collected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that knows nothing of ostinato still leaves a group that the trainer may claim."""
    checkpoint = home / "checkpoint"
    Tokenizer.train(["the tokens of a conversation " * 4], 300, ["<tool_call>\n"]).save(checkpoint)
    renderer = load_renderer(checkpoint)
    store = Store.open(home / "store.db")
    store.add_key(hash_key(KEY), "ada")
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    said = '<tool_call>\n{"name": "Edit", "arguments": {"file_path": "calc.py"}}\n</tool_call>'

    async def script(_: GenerateRequest) -> list[int]:
        return [*renderer.tokenizer.encode(said), renderer.stop_ids[0]]

    repository = home / "repo"
    repository.mkdir()
    (repository / "calc.py").write_text(BEFORE)
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "begin")
    engine = await serve_scripted(ScriptedEngine(script))
    store.set_arms([Arm(name="main", version=1, share=1.0, engines=(engine.url,))])
    async with serving(store, renderer) as url:
        monkeypatch.setenv("OSTINATO_URL", url)
        monkeypatch.setenv("OSTINATO_KEY", KEY)
        repo = find(repository)
        install(repo)
        try:
            call = await messages(url)
            edit = {"tool_name": "Edit", "tool_use_id": call, "tool_input": {"file_path": "calc.py"}}
            await asyncio.to_thread(hook, repository, hook_event_name="PreToolUse", **edit)
            (repository / "calc.py").write_text(AFTER)
            await asyncio.to_thread(hook, repository, hook_event_name="PostToolUse", **edit)
            await asyncio.to_thread(git, repository, "commit", "-qam", "fix add")
            (kept,) = await signals_of(store, SignalKind.EDIT_KEPT)
            assert Collector(store, LIVE).harvest(["main"], as_of=LATER).sessions == 0  # it has not ended
            await asyncio.to_thread(hook, repository, hook_event_name="SessionEnd", reason="other")
            assert await ended(store) is Ending.ABANDONED  # its call never got a result here
        finally:
            uninstall(repo)  # the reporter in the background ends with it
    await engine.close()
    assert kept.turn == 0  # joined by the id of the call: Claude Code does not know our turns
    assert kept.edit is not None and kept.received_at is not None and kept.observed_at <= kept.received_at
    harvest = Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert (harvest.sessions, harvest.offered, harvest.censored, harvest.withheld) == (1, 1, 0, 0)
    assert {"edit.proposed", "edit.commit"} <= {event.name for event in store.events(SESSION)}
