"""The server as a process: its output, what it serves, refuses and survives.

Covers engine/server.py and engine/config.py.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.engine.toolbox import decoder, request

from ostinato.engine.server import main
from ostinato.model.checkpoint import save
from ostinato.model.mtp import Mtp
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Objects
from ostinato.sync import Publisher
from ostinato.types import Completion, from_json, to_json
from ostinato.web.secret import ENGINE_SECRET, bearer

SIZES: dict[str, Any] = {"vocab_size": 270, "experts": 4}
SECRET = "the engine's own"


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_SECRET, SECRET)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    save(directory, decoder(1, **SIZES), Tokenizer.train(["calc.py"], 265), version=1)
    return directory


def published(directory: Path, *seeds: int) -> Path:
    """Versions 1, 2, … with the weights of `decoder(seed)`: an anchor, then deltas."""
    publisher = Publisher(Objects.open(directory))
    publisher.anchor(1, decoder(seeds[0], **SIZES).state_dict())
    for version, seed in enumerate(seeds[1:], start=2):
        publisher.delta(version, decoder(seed, **SIZES).state_dict())
    return directory


async def spawn(checkpoint: Path, *options: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "ostinato.engine.server", "--checkpoint", str(checkpoint), *options]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *command,
        "--max-len",
        "128",
        stdout=pipe,
        stderr=pipe,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@asynccontextmanager
async def serving(
    checkpoint: Path, *options: str
) -> AsyncIterator[tuple[aiohttp.ClientSession, asyncio.subprocess.Process]]:
    process = await spawn(checkpoint, *options)
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    assert ready["ready"] is True
    try:
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{ready['port']}", headers=bearer(SECRET)
        ) as session:
            yield session, process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def get(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as response:
        return await response.json()


async def post(session: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with session.post(path, json=body) as response:
        return response.status, await response.json()


async def test_it_generates_streams_and_names_bad_requests(checkpoint: Path) -> None:
    async with serving(checkpoint) as (session, process):
        health = await get(session, "/healthz")
        assert health["version"] == 1 and health["abilities"]["context"] == 128
        body = to_json(request(3))
        status, answer = await post(session, "/generate", body)
        whole = from_json(Completion, answer)
        assert status == 200 and len(whole.ids) == 12 and whole.routes is not None
        async with session.post("/generate", json=body | {"stream": True}) as response:
            lines = [json.loads(line) async for line in response.content]
        assert tuple(line["id"] for line in lines[:-1]) == whole.ids == from_json(Completion, lines[-1]).ids
        assert (await post(session, "/generate", {"prompt_ids": 3}))[0] == 400
        status, answer = await post(session, "/generate", to_json(request(3, length=128)))
        assert status == 400 and answer["error"]["type"] == "PromptTooLongError"
        status, answer = await post(session, "/load", {"version": 2})
        assert status == 409 and "--objects" in answer["error"]["message"]
        assert await post(session, "/pause", {}) == (200, {"paused": True})
        waiting = asyncio.create_task(post(session, "/generate", body))
        assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        assert await post(session, "/resume", {}) == (200, {"paused": False})
        assert from_json(Completion, (await waiting)[1]).ids == whole.ids
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_client_that_goes_away_frees_its_slot(checkpoint: Path) -> None:
    async with serving(checkpoint, "--slots", "1") as (session, _):
        body = to_json(request(3, max_tokens=118)) | {"stream": True}
        response = await session.post("/generate", json=body)
        await response.content.readline()
        response.close()
        status, _ = await post(session, "/generate", to_json(request(4)))
        assert status == 200
        assert (await get(session, "/stats"))["running"] == 0


async def test_it_follows_what_is_published_while_it_samples(checkpoint: Path, tmp_path: Path) -> None:
    objects = published(tmp_path, 1)
    async with serving(checkpoint, "--objects", str(objects), "--follow") as (session, _):
        publisher = Publisher(Objects.open(objects))
        assert publisher.resume() == 1

        async def sample_until(version: int) -> int:
            count = 0
            while (await get(session, "/healthz"))["version"] < version:
                asked = [request(i, max_tokens=100) for i in range(20)]
                bodies = [post(session, "/generate", to_json(one)) for one in asked]
                assert {status for status, _ in await asyncio.gather(*bodies)} == {200}
                count += 20
            return count

        sampling = asyncio.create_task(sample_until(4))
        for version in (2, 3, 4):
            publisher.delta(version, decoder(version, **SIZES).state_dict())
            await asyncio.sleep(0.15)
        assert await sampling > 0
        stats = await get(session, "/stats")
        assert stats["failed"] == stats["refused"] == 0 and stats["swaps"] >= 1


async def test_a_flipped_bit_in_a_delta_leaves_the_old_version(checkpoint: Path, tmp_path: Path) -> None:
    objects = published(tmp_path, 1, 2)
    parts = set(objects.glob("weights/parts/*/*"))
    publisher = Publisher(Objects.open(objects))
    publisher.resume()
    publisher.delta(3, decoder(3, **SIZES).state_dict())
    added = [path for path in objects.glob("weights/parts/*/*") if path not in parts]
    async with serving(checkpoint, "--objects", str(objects)) as (session, _):
        assert await post(session, "/load", {"version": 2}) == (200, {"version": 2})
        before = await post(session, "/generate", to_json(request(3, temperature=0.0)))
        for part in added:  # the delta, and the anchor that could stand in for it
            content = bytearray(part.read_bytes())
            content[len(content) // 2] ^= 1
            part.write_bytes(content)
        status, answer = await post(session, "/load", {"version": 3})
        assert status == 409 and "version 3 was refused" in answer["error"]["message"]
        assert (await get(session, "/healthz"))["version"] == 2
        after = await post(session, "/generate", to_json(request(3, temperature=0.0)))
        assert after[1]["ids"] == before[1]["ids"]
        assert (await get(session, "/stats"))["refused"] == 1
        status, answer = await post(session, "/load", {"version": 9})
        assert status == 409 and "9" in answer["error"]["message"]


async def test_after_kill_9_a_new_one_serves_the_head(checkpoint: Path, tmp_path: Path) -> None:
    objects = published(tmp_path, 1, 2)
    async with serving(checkpoint, "--objects", str(objects), "--version", "2") as (session, process):
        before = await post(session, "/generate", to_json(request(3)))
        pending = asyncio.create_task(post(session, "/generate", to_json(request(4, max_tokens=118))))
        await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        with pytest.raises(aiohttp.ClientError):
            await post(session, "/generate", to_json(request(4)))
        await asyncio.gather(pending, return_exceptions=True)
    async with serving(checkpoint, "--objects", str(objects), "--version", "2") as (session, _):
        assert (await get(session, "/healthz"))["version"] == 2
        after = await post(session, "/generate", to_json(request(3)))
        assert after[1]["ids"] == before[1]["ids"]


def refused(capsys: pytest.CaptureFixture[str], checkpoint: Path, *options: str) -> str:
    os.environ[ENGINE_SECRET] = SECRET  # `main` takes it out
    assert main(["--checkpoint", str(checkpoint), "--max-len", "128", *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_a_wrong_checkpoint_is_one_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "config.json is missing" in refused(capsys, tmp_path)
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[:-1])
    assert str(tmp_path) in refused(capsys, tmp_path)
    assert "128 positions" in refused(capsys, checkpoint, "--max-len", "129")


async def test_a_layer_that_drafts_comes_with_the_versions(checkpoint: Path, tmp_path: Path) -> None:
    model = decoder(1, **SIZES)
    Publisher(Objects.open(tmp_path)).anchor(1, model.state_dict() | Mtp.beside(model, 0).state_dict())
    options = "--objects", str(tmp_path), "--version", "1"
    answers = []
    for draft in ("mtp", "suffix"):
        async with serving(checkpoint, *options, "--draft", draft) as (session, _):
            answers.append(await post(session, "/generate", to_json(request(3))))
            assert (await get(session, "/stats"))["swaps"] == 1
    assert answers[0] == answers[1] and answers[0][0] == 200


def test_a_layer_that_cannot_come_is_one_line(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no draft in draft/: train one" in refused(capsys, checkpoint, "--draft", "mtp")


def test_a_python_without_vllm_is_one_line(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, checkpoint, "--backend", "vllm", "--python", "/bin/false")
    assert "vLLM did not start (it ended with 1)" in message
    message = refused(capsys, checkpoint, "--backend", "vllm", "--python", "/nowhere/python")
    assert "/nowhere/python: No such file" in message


def test_a_taken_port_is_one_line(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refused(capsys, checkpoint, "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in message


def test_a_version_that_is_not_there_is_one_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "version 5 was refused" in refused(
        capsys, checkpoint, "--objects", str(tmp_path), "--version", "5"
    )


def test_weights_of_another_model_are_one_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest shows it, so that no part is read."""
    Publisher(Objects.open(tmp_path)).anchor(1, decoder(1, **SIZES | {"layers": 3}).state_dict())
    for part in tmp_path.glob("weights/parts/*/*"):
        part.unlink()
    message = refused(capsys, checkpoint, "--objects", str(tmp_path), "--version", "1")
    assert "another architecture: it has 'model.layers.2." in message


async def test_a_taken_port_ends_the_process(checkpoint: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await spawn(checkpoint, "--port", str(taken.getsockname()[1]))
        out, err = await process.communicate()
    assert (process.returncode, out, err.count(b"\n")) == (2, b"", 1)
