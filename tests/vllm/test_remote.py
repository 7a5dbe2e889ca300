"""Covers engine/remote/engine.py and loop/serving/serve_model.py before vLLM's server: `make test-vllm`."""

import asyncio
import os
import socket
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.engine.contract import MAX_LEN, model
from tests.engine.remote.test_standing import TOKENIZER, WIDE, connect, scored, trained
from tests.engine.toolbox import decoder, request
from tests.loop.serving.test_serve_model import chat, recorded, serving
from tests.vllm.install import PYTHON, missing
from tests.vllm.test_vllm import ENVIRONMENT

import ostinato
from ostinato.engine.base import EngineError
from ostinato.model.checkpoint import save
from ostinato.model.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
PATIENCE_S = 300


@asynccontextmanager
async def vllm(checkpoint: Path, log: Path, *more: str, **variables: str) -> AsyncIterator[str]:
    """Run vLLM's own OpenAI server, as a team does; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(MAX_LEN), "--host", "127.0.0.1"]
    words += ["--logprobs-mode", "processed_logprobs"]
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint), "--port", str(port)]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            str(PYTHON),
            *command,
            *words,
            *more,
            stdin=DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, **ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": "1", **variables},
        )
    try:
        await asyncio.wait_for(_healthy(f"http://127.0.0.1:{port}/health", process), PATIENCE_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _healthy(url: str, process: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as http:
        while process.returncode is None:
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
    raise AssertionError(f"vLLM ended with status {process.returncode}")


async def test_a_team_with_a_running_vllm_gets_a_recorded_session(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["calc.py"], 265)
    save(tmp_path / "model", model(1), tokenizer, version=1)
    Tokenizer.train(["another tokenizer of other words"], 290).save(tmp_path / "other")
    async with vllm(tmp_path / "model", tmp_path / "vllm.log") as url:
        with pytest.raises(AssertionError, match="with another tokenizer than this checkpoint's"):
            async with serving(tmp_path / "wrong", "--engine", url, "--model", str(tmp_path / "other")):
                pass
        words = ("--engine", url, "--model", str(tmp_path / "model"), "--version", "3")
        async with serving(tmp_path / "serve", *words) as (printed, environment):
            await chat(environment)
    assert "as version 3" in printed[0] and not any("never trained" in line for line in printed)
    (turn,) = recorded(tmp_path / "serve" / "store.db")
    assert len(turn.completion.ids) == len(turn.completion.logprobs) > 0
    assert all(logprob < 0 for logprob in turn.completion.logprobs) and turn.unscorable is None


async def test_serve_starts_a_vllm_itself(tmp_path: Path) -> None:
    save(tmp_path / "model", model(1), Tokenizer.train(["calc.py"], 265), version=1)
    engine = ("--backend", "vllm", "--dtype", "float32", "--python", str(PYTHON), "--context", str(MAX_LEN))
    words = ("--model", str(tmp_path / "model"), *engine, "--slots", "4")
    async with serving(tmp_path / "serve", *words) as (printed, environment):
        await chat(environment)
    assert not any("never trained" in line for line in printed)
    (turn,) = recorded(tmp_path / "serve" / "store.db")
    assert turn.unscorable is None and turn.completion.ids


async def test_versions_reach_it_as_adapters_and_one_that_it_loses_is_loaded_again(tmp_path: Path) -> None:
    save(tmp_path / "model", decoder(1, **WIDE), TOKENIZER, version=0)
    lora = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "2")
    allowed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true"}
    async with vllm(tmp_path / "model", tmp_path / "vllm.log", *lora, **allowed) as url:
        engine = await connect(url, tmp_path / "model", tmp_path)
        for version in (3, 4):
            await engine.swap(version, trained(tmp_path / "model", version))
            await scored(engine, trained(tmp_path / "model", version))
        async with aiohttp.ClientSession() as http:
            body = {"lora_name": "team@4"}
            async with http.post(f"{url}/v1/unload_lora_adapter", json=body) as response:
                assert response.status == 200
        with pytest.raises(EngineError, match="404"):
            await engine.generate(request(5))
        await scored(engine, trained(tmp_path / "model", 4))
        await engine.aclose()


async def test_whole_weights_reach_its_workers(tmp_path: Path) -> None:
    save(tmp_path / "model", decoder(1, **WIDE), TOKENIZER, version=0)
    (tmp_path / "import").mkdir()
    (tmp_path / "import" / "ostinato").symlink_to(Path(ostinato.__file__).parent)
    started = ("--worker-extension-cls", "ostinato.engine.vllm.worker.Versions")
    variables = {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": str(tmp_path / "import")}
    async with vllm(tmp_path / "model", tmp_path / "vllm.log", *started, **variables) as url:
        engine = await connect(url, tmp_path / "model", tmp_path, "weights")
        for version in (2, 5):
            await engine.swap(version, trained(tmp_path / "model", version, rank=40))
            await scored(engine, trained(tmp_path / "model", version, rank=40))
        await engine.aclose()
