"""Covers loop/serving/serve_model.py and loop/hub.py: a checkpoint, and a vLLM that is there, served without
a run.
"""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rich.console import Console
from tests.engine.remote.fake_vllm import LOGPROB, fake_vllm

from ostinato.loop.hub import ModelMissingError, find_model
from ostinato.loop.services import ServiceError
from ostinato.loop.serving.serve_model import ServeModelConfig, ServeModelError, serve_model
from ostinato.model.config import ModelConfig
from ostinato.model.create import create
from ostinato.model.tokenizer import IM_END, Tokenizer
from ostinato.store import Store, StoreError
from ostinato.types import Turn
from ostinato.web.port import PortBusyError

TOKENIZER = Tokenizer.train(["the file holds the answer " * 4], 300)
SAID = (*TOKENIZER.encode("the answer"), TOKENIZER.encode(IM_END)[0])


@asynccontextmanager
async def serving(directory: Path, *words: str) -> AsyncIterator[tuple[list[str], Mapping[str, str]]]:
    """Run `ostinato serve`; yield what it printed and the environment that it tells people to set."""
    command = ["-m", "ostinato.cli", "serve", "--directory", str(directory), "--port", "0", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=env
    )
    assert process.stdout is not None
    try:
        printed = list[str]()
        async for line in process.stdout:
            printed.append(line.decode())
            if "export " in printed[-1]:
                break
        else:
            assert process.stderr is not None
            raise AssertionError((await process.stderr.read()).decode())
        pairs = [word.split("=", 1) for word in printed[-1].split() if "=" in word]
        yield printed, dict(pairs)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def chat(environment: Mapping[str, str]) -> dict[str, Any]:
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "the file"}], "max_tokens": 8}
    headers = {"Authorization": f"Bearer {environment['OSTINATO_KEY']}"}
    url = environment["OSTINATO_URL"] + "/v1/chat/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


def recorded(store: Path) -> list[Turn]:
    record = Store.open(store)
    try:
        return [turn for session in record.sessions() for turn in record.turns(session.id)]
    finally:
        record.close()


def test_a_database_with_its_password_is_refused() -> None:
    with pytest.raises(StoreError, match="holds a password") as refused:
        ServeModelConfig(model="m", store="postgresql://ada:guessed@db/name")
    assert "guessed" not in str(refused.value)


@pytest.mark.slow
async def test_a_vllm_that_is_there_is_recorded_exactly(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "model")
    store = tmp_path / "record.db"
    async with fake_vllm(TOKENIZER, SAID) as (url, bodies):
        words = ("--engine", url, "--model", str(tmp_path / "model"), "--store", str(store), "--version", "7")
        async with serving(tmp_path / "serve", *words) as (printed, environment):
            answer = await chat(environment)
    assert "serving smol as version 7" in printed[0]
    assert not any("never trained" in line for line in printed)
    assert answer["choices"][0]["message"]["content"] == "the answer"
    (turn,) = recorded(store)
    assert turn.completion.ids == SAID and turn.completion.versions == (7,) * len(SAID)
    assert turn.completion.logprobs == (LOGPROB,) * len(SAID) and turn.unscorable is None
    assert list(turn.prompt_ids) == bodies[-1]["prompt"]


@pytest.mark.slow
async def test_an_engine_without_logprobs_is_said_at_the_start_and_never_trained(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "model")
    async with fake_vllm(TOKENIZER, SAID, logprobs=False) as (url, _):
        words = ("--engine", f"{url}/v1/", "--model", str(tmp_path / "model"))
        async with serving(tmp_path / "serve", *words) as (printed, environment):
            await chat(environment)
    assert any("returns no log-probabilities: its turns are recorded and never" in line for line in printed)
    (turn,) = recorded(tmp_path / "serve" / "store.db")
    assert turn.unscorable == "its engine gave no log-probabilities"


@pytest.mark.slow
async def test_a_vllm_with_another_tokenizer_is_refused_at_the_start(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "model")
    other = Tokenizer.train(["quite another corpus of words " * 4], 310)
    async with fake_vllm(other, SAID) as (url, _):
        with pytest.raises(AssertionError, match="with another tokenizer than this checkpoint's"):
            async with serving(tmp_path / "serve", "--engine", url, "--model", str(tmp_path / "model")):
                pass


@pytest.mark.slow
async def test_a_checkpoint_is_served_by_an_engine_of_its_own(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "model")
    shape = ModelConfig(
        vocab_size=300, hidden_size=16, layers=1, heads=1, kv_heads=1, head_dim=8, intermediate_size=16
    )
    create(tmp_path / "model", shape, 0)
    words = ("--model", str(tmp_path / "model"), "--context", "256", "--slots", "2")
    async with serving(tmp_path / "serve", *words) as (printed, environment):
        await chat(environment)
    assert "serving model as version 0" in printed[0]
    (turn,) = recorded(tmp_path / "serve" / "store.db")
    assert turn.unscorable is None


@pytest.mark.parametrize("kept", [False, True])
async def test_a_busy_port_is_found_before_the_model_is_loaded_and_leaves_no_folder(
    tmp_path: Path, kept: bool
) -> None:
    TOKENIZER.save(tmp_path / "model")  # there are no weights: loading them would be another complaint
    folder = tmp_path / "runs" / "serve"
    folder.mkdir(parents=True) if kept else None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = ServeModelConfig(model=str(tmp_path / "model"), directory=folder, port=port)
        with pytest.raises(PortBusyError, match=f"127.0.0.1:{port} .*another port with --port"):
            await serve_model(config, Console())
    assert folder.exists() is kept and folder.parent.exists() is kept


async def test_an_engine_that_does_not_start_leaves_no_folder(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "model")
    folder = tmp_path / "runs" / "serve"
    with pytest.raises(ServiceError, match="serve-engine-0"):
        await serve_model(
            ServeModelConfig(model=str(tmp_path / "model"), directory=folder, port=0), Console()
        )
    assert not folder.parent.exists()


async def test_an_engine_that_is_not_there_is_named_before_its_model_is_looked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    config = ServeModelConfig(model="nobody/nothing", engines=(url,), directory=tmp_path / "runs", port=0)
    with pytest.raises(
        ServeModelError, match=rf"--engine {url}: nothing responds there .*: start the engine"
    ):
        await serve_model(config, Console())


def test_a_model_that_is_nowhere_is_named() -> None:
    with pytest.raises(ModelMissingError, match="models/none is neither a directory nor"):
        find_model("./models/none")


def test_settings_of_an_engine_that_is_started_here_are_refused_beside_one_that_is_there() -> None:
    with pytest.raises(ServeModelError, match=r"--objects.* leave"):
        ServeModelConfig(model="m", engines=("http://a",), objects="o")
