"""A front and its nodes as processes: their responses, and their end when one is killed.

Covers fleet/server/front.py, fleet/server/node.py, fleet/server/sandboxes.py, fleet/server/control.py,
fleet/server/access.py, fleet/server/templates.py, fleet/server/node_client.py, fleet/server/local_node.py,
fleet/server/serve.py, fleet/server/migration.py and fleet/choose.py.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.conftest import served

from ostinato.fleet.client.backend import RemoteBackend
from ostinato.fleet.client.client import ConflictError, GoneError, RefusalError, SandboxClient
from ostinato.fleet.scheduler.types import SCORING_S
from ostinato.fleet.server.access import hash_key
from ostinato.sandbox import Limits, SandboxError, Spec


@pytest.fixture
async def client(front: tuple[str, str], templates: Path) -> AsyncIterator[SandboxClient]:
    assert templates.is_dir()
    client = SandboxClient(*front)
    yield client
    await client.aclose()


async def create(client: SandboxClient, **body: Any) -> str:
    created = await client.call("POST", "/sandboxes", {"templateID": "base", "timeout": 60, **body})
    return str(created["sandboxID"])


async def eventually(true: Any, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not await true():
        assert time.monotonic() < until, "the condition never came true"
        await asyncio.sleep(0.1)


async def loss_of(client: SandboxClient, sandbox: str) -> str:
    """Return the message that says that a sandbox is gone; empty while it is there."""
    try:
        await client.call("GET", f"/sandboxes/{sandbox}")
    except GoneError as error:
        return str(error)
    except SandboxError:
        return ""
    return ""


async def test_the_same_name_is_the_same_sandbox(client: SandboxClient) -> None:
    first, second = [await create(client, ostinato={"sandboxID": "inamed"}) for _ in range(2)]
    assert first == second == "inamed"
    await client.call("DELETE", "/sandboxes/inamed")
    with pytest.raises(ConflictError, match="has ended"):
        await create(client, ostinato={"sandboxID": "inamed"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"templateID": "../etc"}, "no template"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "long"}, "not a sandbox"),
        ({"metadata": {"a": 1}}, "not a sandbox"),
        ({"ostinato": {"limits": {"memory_mb": 10**9}}}, "more than any node"),
        ({"ostinato": {"limits": {"colour": 1}}}, "not a sandbox"),
    ],
)
async def test_an_impossible_request_is_refused_with_its_reason(
    client: SandboxClient, body: Any, words: str
) -> None:
    with pytest.raises(SandboxError, match=words):
        await create(client, **body)


async def test_a_client_without_a_key_is_not_served(front: tuple[str, str], client: SandboxClient) -> None:
    sandbox = await create(client)
    stranger = SandboxClient(front[0], "ost_guessed")
    for call in (
        stranger.call("GET", "/sandboxes"),
        stranger.call("GET", "/node"),
        stranger.rpc(sandbox, "process.Process/List", {}),
        stranger.download(sandbox, "a.py"),
    ):
        with pytest.raises(SandboxError, match="key"):
            await call
    await stranger.aclose()
    await client.call("DELETE", f"/sandboxes/{sandbox}")


async def test_keys_are_kept_hashed(state: Path, front: tuple[str, str]) -> None:
    assert (state / "keys").read_text() == hash_key(front[1]) + "\n"
    assert (state / "key").stat().st_mode & 0o077 == 0


async def test_a_template_whose_content_does_not_match_its_name_is_refused(client: SandboxClient) -> None:
    with pytest.raises(SandboxError, match="pack the directory again"):
        await client.call("PUT", "/templates/tree-00", data=b"something")


async def test_a_sandbox_outlives_its_deadline(client: SandboxClient) -> None:
    """Scoring runs after the deadline: a sandbox that ended at its deadline could not be scored."""
    sandbox = await create(client, timeout=1)
    await asyncio.sleep(2.5)
    assert await client.download(sandbox, "a.py") == b"print('a')\n"
    assert SCORING_S > 60
    await client.call("DELETE", f"/sandboxes/{sandbox}")


async def test_unread_output_does_not_stop_a_command(client: SandboxClient) -> None:
    """A client that goes away in the middle leaves a full pipe: this command and others must go on."""
    sandbox = await create(client)
    line = "head -c 30000000 /dev/zero; touch done"
    start = {"process": {"cmd": "/bin/sh", "args": ["-c", line]}}
    events = client.stream(sandbox, "process.Process/Start", start)
    await anext(events)
    await anext(events)
    await events.aclose()
    stat = {"path": "done"}

    async def done() -> bool:
        try:
            return bool(await client.rpc(sandbox, "filesystem.Filesystem/Stat", stat))
        except FileNotFoundError:
            return False

    await eventually(done)
    await client.call("DELETE", f"/sandboxes/{sandbox}")


async def test_a_paused_sandbox_takes_no_calls(client: SandboxClient) -> None:
    sandbox = await create(client)
    await client.call("POST", f"/sandboxes/{sandbox}/pause", {})
    with pytest.raises(SandboxError, match="paused"):
        await client.rpc(sandbox, "process.Process/List", {})
    with pytest.raises(ConflictError):
        await client.call("POST", f"/sandboxes/{sandbox}/pause", {})
    await client.call("POST", f"/sandboxes/{sandbox}/resume", {})
    assert await client.rpc(sandbox, "process.Process/List", {}) == {"processes": []}
    await client.call("DELETE", f"/sandboxes/{sandbox}")


async def test_a_sweep_ends_the_sandboxes_that_a_run_left(client: SandboxClient) -> None:
    left = {await create(client, metadata={"run": "crashed"}) for _ in range(3)}
    other = await create(client, metadata={"run": "alive"})
    swept = await client.call("POST", "/sweep", {"label": "run", "value": "crashed"})
    assert set(swept["ended"]) == left
    assert await loss_of(client, other) == ""
    await client.call("DELETE", f"/sandboxes/{other}")


async def test_twenty_clients_at_once_get_their_own_sandboxes(front: tuple[str, str], tmp_path: Path) -> None:
    """No sandbox is lost or placed twice, and a refused request is repeated by itself."""
    (tmp_path / "repo").mkdir()
    backend = await RemoteBackend.connect(*front)
    limits = Limits(memory_mb=64, disk_mb=8)

    async def one(number: int) -> tuple[str, str]:
        sandbox = await backend.create(Spec(repo=tmp_path / "repo", limits=limits))
        await sandbox.write("mine", str(number).encode())
        output = (await sandbox.exec("cat mine")).output
        await sandbox.destroy()
        return sandbox.id, output

    results = await asyncio.gather(*(one(number) for number in range(20)))
    assert [output for _, output in results] == [str(number) for number in range(20)]
    assert len({name for name, _ in results}) == 20
    await backend.aclose()


@contextlib.asynccontextmanager
async def fleet(tmp_path: Path, *more: str) -> AsyncIterator[tuple[SandboxClient, Path]]:
    state = tmp_path / "front"
    (state / "templates" / "base").mkdir(parents=True)
    (state / "templates" / "base" / "a.py").write_text("")
    with served("serve", state, "--backend", "process", "--cpu-limit", "2", *more) as url:
        client = SandboxClient(url, (state / "key").read_text())
        yield client, state
        await client.aclose()


def node_pids(state: Path) -> list[int]:
    """Return the process ids of a front's node, which its state directory shows."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"node" in words and str(state / "node").encode() in words:
                pids.append(int(entry.name))
    return pids


async def test_a_killed_node_takes_its_sandboxes_but_not_its_snapshots(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (client, state):
        sandbox = await create(client)
        await client.upload(sandbox, "kept.txt", b"kept")
        saved = (await client.call("POST", f"/sandboxes/{sandbox}/snapshots", {}))["snapshotID"]
        (pid,) = node_pids(state)
        os.kill(pid, signal.SIGKILL)

        async def reported() -> bool:
            return "was lost" in await loss_of(client, sandbox)

        await eventually(reported)
        assert sandbox in await client.call("GET", "/lost")

        async def again() -> bool:
            try:
                return bool(await create(client))
            except (RefusalError, GoneError, SandboxError):
                return False

        await eventually(again)
        restored = await create(client, templateID=saved)
        assert await client.download(restored, "kept.txt") == b"kept"
        await client.call("DELETE", f"/templates/{saved}")
    assert not node_pids(state)


async def test_a_full_fleet_refuses_with_a_time_and_serves_once_there_is_room(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (client, _):
        cores = (await client.call("GET", "/node"))["capacity"][0] // 1000
        if cores > 8:
            pytest.skip(f"{cores} cores have room for {cores * 4} sandboxes: too many to start here")
        small = {"limits": {"memory_mb": 16, "disk_mb": 1}}
        first, *_ = [await create(client, ostinato=small) for _ in range(cores * 4)]
        with pytest.raises(RefusalError) as refused:
            await create(client, ostinato={**small, "sandboxID": "ilast"})
        assert 0 < refused.value.retry_after_s <= 1
        with pytest.raises(RefusalError) as refused:
            await create(client, ostinato={**small, "sandboxID": "ilast"})
        assert refused.value.retry_after_s % 1, "more exact than Retry-After"
        await client.call("DELETE", f"/sandboxes/{first}")
        await asyncio.sleep(refused.value.retry_after_s)
        assert await create(client, ostinato={**small, "sandboxID": "ilast"}) == "ilast"


async def test_a_new_front_takes_over_the_sandboxes_and_warm_ones_are_ready(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    (templates / "base").mkdir(parents=True)
    more = ("--backend", "process", "--templates", str(templates))
    with served("node", tmp_path / "node", *more) as node_url:
        key = (tmp_path / "node" / "key").read_text()
        key_file = str(tmp_path / "node" / "key")
        options = (
            "--node",
            node_url,
            "--node-key-file",
            key_file,
            "--cpu-limit",
            "2",
            "--memory-overcommit",
            "8",
        )
        with served("serve", tmp_path / "one", *options, "--pool", "base=2") as url:
            client = SandboxClient(url, (tmp_path / "one" / "key").read_text())
            node = SandboxClient(node_url, key)

            async def warm() -> bool:
                return len(await node.call("GET", "/sandboxes")) >= 2

            await eventually(warm)
            sandbox = await create(client, metadata={"run": "1"})
            assert [each["sandboxID"] for each in await client.call("GET", "/sandboxes")] == [sandbox]
            await client.aclose()
        with served("serve", tmp_path / "two", *options) as url:
            client = SandboxClient(url, (tmp_path / "two" / "key").read_text())
            assert (await client.call("GET", f"/sandboxes/{sandbox}"))["metadata"] == {"run": "1"}
            await client.call("DELETE", f"/sandboxes/{sandbox}")
            assert await loss_of(client, sandbox)
            with pytest.raises(GoneError):
                await client.call("DELETE", "/sandboxes/ilate")
            await create(node, ostinato={"sandboxID": "ilate"})

            async def ended() -> bool:
                return bool(await loss_of(node, "ilate"))

            await eventually(ended)
            await client.aclose()
        await node.aclose()
