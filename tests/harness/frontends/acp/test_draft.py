"""Version 2 at the edge: the same session, told by notifications."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.frontends.acp.test_agent import EDIT, call
from tests.harness.frontends.acp.toolbox import command, environment

from ostinato.harness.frontends.acp.draft import git_patch


class Peer:
    """A client of version 2, written by hand: there is no SDK of the draft yet."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.updates: list[dict] = []
        self.number = 0

    async def ask(self, method: str, **params) -> dict:
        self.number += 1
        await self.send(id=self.number, method=method, params=params)
        while True:
            message = await self.receive()
            if message.get("id") == self.number and "method" not in message:
                return message

    async def send(self, **message) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self.process.stdin.drain()

    async def receive(self) -> dict:
        message = json.loads(await self.process.stdout.readline())
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        return message

    async def until_idle(self, permit: str = "allow_once") -> str:
        while True:
            message = await self.receive()
            if message.get("method") == "session/request_permission":
                self.asked = message["params"]
                await self.send(
                    id=message["id"], result={"outcome": {"outcome": "selected", "optionId": permit}}
                )
            if message.get("params", {}).get("update", {}).get("state") == "idle":
                return message["params"]["update"]["stopReason"]

    def of(self, kind: str) -> list[dict]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]


@pytest.fixture
def start(gateway: str, tmp_path: Path):
    async def started(*options: str) -> Peer:
        process = await asyncio.create_subprocess_exec(
            *command(gateway, "--draft", *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(tmp_path / "state"),
        )
        return Peer(process)

    return started


async def end(peer: Peer) -> None:
    peer.process.stdin.close()
    await peer.process.communicate()


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_a_session_of_version_2(start, repo: Path, script):
    script += [
        call("todo_write", todos=[{"content": "look", "status": "pending"}]),
        EDIT,
        call("bash", command="true && make"),
        "done",
    ]
    peer = await start("--profile", "full")
    answer = (await peer.ask("initialize", protocolVersion=2, info={"name": "t", "version": "1"}))["result"]
    assert answer["protocolVersion"] == 2 and answer["info"]["name"] == "ostinato"
    assert answer["capabilities"]["session"]["prompt"] == {"embeddedContext": {}}
    new = (await peer.ask("session/new", cwd=str(repo)))["result"]
    assert {option["configId"] for option in new["configOptions"]} == {"mode", "profile"}
    session = new["sessionId"]
    words = [{"type": "text", "text": "calc.py is off"}]
    assert (await peer.ask("session/prompt", sessionId=session, prompt=words))["result"] == {}
    assert await peer.until_idle() == "end_turn"
    assert peer.of("user_message")[0]["content"] == words
    states = [update["state"] for update in peer.of("state_update")]
    assert states == ["running", "requires_action", "running", "idle"]
    assert peer.asked["title"] == "bash: true && make" and peer.asked["subject"]["type"] == "tool_call"
    assert peer.of("plan_update")[0]["plan"]["entries"][0]["content"] == "look"
    assert peer.of("tool_call") == [] and peer.of("plan") == []
    (diff,) = [
        item for u in peer.of("tool_call_update") for item in u.get("content", []) if item["type"] == "diff"
    ]
    assert diff["changes"] == [{"operation": "modify", "path": str(repo / "calc.py"), "fileType": "text"}]
    assert "+    return a + b" in diff["patch"]["diff"]
    assert all("messageId" in chunk for chunk in peer.of("agent_message_chunk"))
    refused = await peer.ask("session/load", sessionId=session, cwd=str(repo))
    assert refused["error"]["code"] == -32601
    shown = len(peer.updates)
    await peer.ask("session/resume", sessionId=session, cwd=str(repo), replayFrom={"type": "start"})
    assert [u["sessionUpdate"] for u in peer.updates[shown:]].count("user_message_chunk") == 1
    await end(peer)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_cancel_is_told_by_idle_and_errors_as_messages(start, repo: Path, script, prompts):
    peer = await start()
    await peer.ask("initialize", protocolVersion=7, info={"name": "t", "version": "1"})
    session = (await peer.ask("session/new", cwd=str(repo)))["result"]["sessionId"]
    await peer.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hang"}])
    while not prompts:
        await asyncio.sleep(0.01)
    await peer.send(method="session/cancel", params={"sessionId": session})
    assert await peer.until_idle() == "cancelled"
    await peer.ask("session/prompt", sessionId="unknown", prompt=[{"type": "text", "text": "x"}])
    assert await peer.until_idle() == "end_turn"
    assert "load or resume" in peer.of("agent_message")[0]["content"][0]["text"]
    await end(peer)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_version_1_is_spoken_with_who_asks_for_it(start, repo: Path, script):
    script += ["done"]
    peer = await start()
    answer = (await peer.ask("initialize", protocolVersion=1))["result"]
    assert answer["protocolVersion"] == 1 and answer["agentCapabilities"]["loadSession"] is True
    session = (await peer.ask("session/new", cwd=str(repo), mcpServers=[]))["result"]["sessionId"]
    words = [{"type": "text", "text": "x"}]
    assert (await peer.ask("session/prompt", sessionId=session, prompt=words))["result"][
        "stopReason"
    ] == "end_turn"
    await end(peer)


@settings(deadline=None, max_examples=25)
@given(st.none() | st.text("ab\n", max_size=12), st.text("ab\n", max_size=12))
def test_patches_are_gits(tmp_path_factory: pytest.TempPathFactory, old: str | None, new: str):
    if old == new or (old is None and not new):
        return
    folder = tmp_path_factory.mktemp("patched")
    if old is not None:
        (folder / "x.py").write_text(old)
    patch = git_patch("x.py", old, new)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch.encode(), check=True)
    assert (folder / "x.py").read_text() == new
